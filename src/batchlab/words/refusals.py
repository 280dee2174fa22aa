"""Why no rule gives a number, and what would help."""

from __future__ import annotations

from typing import assert_never

from batchlab.core.format import format_count, format_size
from batchlab.scaling import LearningRateRule, Refusal
from batchlab.scaling.refusals import (
    AboveBestBatch,
    AboveCriticalBatch,
    AtEqualTime,
    BatchTooFar,
    LawCountsTokens,
    LawNeedsParameters,
    LawWithoutRate,
    MixedBudgets,
    MixedModels,
    NeedsBestBatch,
    Negative,
    NoAnswer,
    NoHalfLife,
    NoModelSize,
    NothingMeasured,
    NothingTuned,
    NotPositive,
    OptimumOnlyBounded,
    OptimumTooFar,
    OtherOptimizer,
    SdeOutOfRange,
    TooFewSteps,
    WarmupTooShort,
)
from batchlab.scaling.rules import Axis


def describe_refusal(refusal: Refusal) -> str:
    """One or two sentences."""
    match refusal:
        case NotPositive(name, value):
            return f"{_spaced(name)}: {value:g} was given; it must be a finite number above 0."
        case Negative(name, value):
            return f"{_spaced(name)}: {value:g} was given; it must be a finite number of at least 0."
        case NothingTuned():
            return "No batch size has a tuned learning rate, so there is nothing to extrapolate; run the study first."
        case NothingMeasured():
            return "Nothing was measured, so there is nothing to confirm; run a study at a small budget first."
        case NoAnswer():
            return "The study has no answer that could be extrapolated."
        case AtEqualTime():
            return (
                "This study gave every batch size the same time (--run-time), and the rules for other batch sizes, "
                "budgets and models are of equal tokens; study them with --token-budget."
            )
        case BatchTooFar() | NeedsBestBatch() | AboveBestBatch() | TooFewSteps():
            return _of_batch(refusal)
        case MixedModels() | MixedBudgets() | NoModelSize() | OptimumTooFar():
            return _of_optimum(refusal)
        case OptimumOnlyBounded():
            return _only_bounded(refusal)
        case OtherOptimizer(family):
            return (
                "How the best batch size and learning rate move with budget and model size was published for Adam "
                f"only, and this optimizer is {'SGD' if family == 'sgd' else 'another one'}; measure them at the new "
                "budget or model."
            )
        case LawCountsTokens():
            return (
                "The published laws are of language models and count tokens; this study counts samples. Measure a "
                "budget."
            )
        case LawNeedsParameters(law):
            return f"{law.name} needs the number of parameters of the model, without embeddings; give it."
        case LawWithoutRate(law):
            return f"{law.name} gives no learning rate; tune it, or name Step Law or DeepSeek."
        case NoHalfLife() | SdeOutOfRange() | AboveCriticalBatch() | WarmupTooShort():
            return _of_time_constant(refusal)
        case _:
            assert_never(refusal)


def _of_batch(refusal: BatchTooFar | NeedsBestBatch | AboveBestBatch | TooFewSteps) -> str:
    match refusal:
        case BatchTooFar(start, end, reach):
            return (
                f"Batch {format_size(end)} is {max(end / start, start / end):.3g} × away from {format_size(start)}, "
                f"where the learning rate was tuned; it is extrapolated at most {reach:g} ×, to "
                f"{format_size(start / reach)} to {format_size(start * reach)}. Tune it at a batch size nearer to it."
            )
        case NeedsBestBatch(rule):
            return (
                f"The {_name(rule)} rule needs the best batch size B_opt, because the learning rate stops rising "
                "there; measure it with a study around it, give a published estimate, or keep the learning rate."
            )
        case AboveBestBatch(LearningRateRule.LINEAR, best, size):
            return (
                f"The linear rule ends at the best batch size, {format_size(best)}, and this move reaches "
                f"{format_size(size)}: beyond it, learning rates set in proportion diverged in tests. Use the "
                "saturating rule."
            )
        case AboveBestBatch(rule, best, size):
            return (
                f"The {_name(rule)} rule holds while noise outweighs the gradient, below the best batch size "
                f"{format_size(best)}; this move reaches {format_size(size)}. Use the saturating rule."
            )
        case TooFewSteps():
            return (
                f"Batch {refusal.global_batch_size:,} would make {refusal.steps:,} steps of a budget of "
                f"{format_count(refusal.token_budget)} {refusal.unit.value}; under {refusal.fewest} steps no rule was "
                "shown to hold. Give a smaller batch or a larger budget."
            )
        case _:
            assert_never(refusal)


def _only_bounded(refusal: OptimumOnlyBounded) -> str:
    best, smallest, largest = refusal.best, refusal.smallest, refusal.largest
    if smallest == largest:
        return (
            f"Only batch {best:,} was tried, so the best batch size is unknown and cannot be extrapolated; give "
            "--batch-size, or run the study with more batch sizes."
        )
    end, side = ("smallest", "at most") if best == smallest else ("largest", "at least")
    further = "smaller" if best == smallest else "larger"
    return (
        f"The best batch size was the {end} one tried, so all that is known is that it is {side} {best:,}, and it "
        f"cannot be extrapolated; give --batch-size, or run the study with {further} batch sizes."
    )


def _of_optimum(refusal: MixedModels | MixedBudgets | NoModelSize | OptimumTooFar) -> str:
    match refusal:
        case MixedModels(parameters):
            sizes = ", ".join(format_count(size) for size in parameters)
            return f"The optima belong to models of different size ({sizes} parameters); give those of one model."
        case MixedBudgets():
            return "The optima belong to different token budgets, which moves them too; bring them to one budget first."
        case NoModelSize():
            return "No optimum comes with its number of parameters, so it cannot be moved to another model size."
        case OptimumTooFar():
            return _too_far(refusal)
        case _:
            assert_never(refusal)


def _too_far(refusal: OptimumTooFar) -> str:
    to, nearest, reach = refusal.to, refusal.nearest, refusal.reach
    budget = refusal.axis is Axis.BUDGET
    basis = "published laws" if refusal.laws else "what was measured"
    remedy = f"Measure a {'budget' if budget else 'model'} nearer to it"
    if refusal.laws:
        remedy = "Measure a smaller budget of this model first"
    bound = f"at least {format_count(to / reach)}" if to > nearest else f"at most {format_count(to * reach)}"
    return (
        f"A {'token budget' if budget else 'model size'} of {format_count(to)} is "
        f"{max(to / nearest, nearest / to):.3g} × beyond {basis} ({format_count(nearest)}), and nothing is "
        f"extrapolated further than {reach:g} ×. {remedy}, {bound}."
    )


def _of_time_constant(
    refusal: NoHalfLife | SdeOutOfRange | AboveCriticalBatch | WarmupTooShort,
) -> str:
    match refusal:
        case NoHalfLife(beta):
            return f"A beta of {beta:g} has no half-life; it must lie between 0 and 1."
        case SdeOutOfRange(beta, ratio, most):
            return (
                f"The rule 1 − κ(1 − beta) has no valid beta at κ = {ratio:g} × the batch from {beta:g}: "
                f"κ(1 − beta) is {ratio * (1 - beta):.3g} and must stay below 1, so κ below {most:.3g}. "
                "Hold the half-life in tokens instead, or use a smaller κ."
            )
        case AboveCriticalBatch(size, critical):
            return (
                f"Batch {format_size(size)} is above the critical batch size {format_size(critical)}; weight decay in "
                "proportion to the batch was shown only below it. Keep the weight decay, or tune it there."
            )
        case WarmupTooShort(tokens, per_step, fewest):
            return (
                f"A warm-up of {format_count(tokens)} tokens is {tokens / per_step:.2g} steps of "
                f"{format_count(per_step)} tokens; under {fewest} steps is a jump, not a warm-up. Give it at least "
                f"{format_count(fewest * per_step)} tokens, or use a smaller batch."
            )
        case _:
            assert_never(refusal)


def _name(rule: LearningRateRule) -> str:
    return rule.value.replace("_", "-")


def _spaced(name: str) -> str:
    return name.replace("_", " ").replace("warmup", "warm-up").capitalize()
