"""What `batchlab check` found, for a terminal, the report and the list of failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from batchlab.core.check import (
    CheckItem,
    CheckResult,
    DataSizeFinding,
    EvaluationFinding,
    GradientFinding,
    LearningRateFinding,
    OverlapFinding,
    PlaceholderFinding,
    RaisedError,
    ReductionFinding,
    SeedFinding,
    SplittingFinding,
    StartLoss,
    TooLarge,
)
from batchlab.core.format import format_count, format_plural
from batchlab.words.optimizer_groups import describe_group

_MARKS = {"ok": "✓", "note": "·", "fail": "✗"}
_SHOWN_NAMES = 3


def check_lines(result: CheckResult) -> list[str]:
    """One line per item for a terminal: ✓ ok, · worth knowing, ✗ to be fixed first."""
    width = max((len(item.name) for item in result.items), default=0)
    return [f"{_MARKS[item.status]} {item.name:<{width}}  {describe_check(item)}" for item in result.items]


def checked_again(edited: Sequence[str]) -> str:
    """A study that had only checked its task begins again, because these files were edited."""
    return f"edited since the check: {', '.join(edited)}; the task is checked again"


_NOTHING_TRAINED = "The check of the task failed, so nothing was trained"


def check_failed(items: Sequence[CheckItem]) -> str:
    """That nothing was trained because a check failed, as a sentence; empty if none did."""
    return f"{_NOTHING_TRAINED}." if _failed(items) else ""


def first_failure(items: Sequence[CheckItem]) -> str:
    """The same with what the first check that failed has found."""
    failed = _failed(items)
    more = f" ({format_plural(len(failed) - 1, 'other check')} failed too)" if len(failed) > 1 else ""
    return f"{_NOTHING_TRAINED}: {describe_check(failed[0])}{more}." if failed else ""


def _failed(items: Sequence[CheckItem]) -> list[CheckItem]:
    return [item for item in items if item.status == "fail"]


def describe_check(item: CheckItem) -> str:
    """What the item found and, where it failed, what to do."""
    match item.finding:
        case StartLoss() as found:
            return _start_loss(found)
        case ReductionFinding() as found:
            return _reduction(found)
        case SplittingFinding() as found:
            return _splitting(found)
        case SeedFinding() as found:
            return _seeds(found)
        case LearningRateFinding() as found:
            return _learning_rate(found)
        case EvaluationFinding() as found:
            return _evaluation(found)
        case GradientFinding() as found:
            return _gradients(found)
        case OverlapFinding() as found:
            return _overlap(found)
        case DataSizeFinding() as found:
            return _data_size(found)
        case PlaceholderFinding() as found:
            return _placeholder(found)
        case RaisedError() as found:
            return found.message if found.same_as is None else f"not tested: the same error as in {found.same_as!r}"
        case TooLarge() as found:
            return (
                f"not tested: {found.samples} samples at a time need more memory than the device has; run "
                "`batchlab check` on a larger device to test it"
            )
        case _ as never:
            assert_never(never)


def _placeholder(found: PlaceholderFinding) -> str:
    loss = "no loss" if found.loss is None else f"{found.loss:.4g}"
    name = found.placeholder
    match found.found:
        case "repeats":
            if name:
                return f"two runs of {found.steps} steps with one seed gave the same losses ({loss})"
            return f"two runs of {found.steps} steps gave the same losses ({loss}); without {{seed}}, n = 1"
        case "differs":
            seeded = f"equal commands, also the same {name}," if name else "equal commands"
            return f"{seeded} gave different losses, so part of the script is not seeded; runs are not paired"
        case "timed":
            return "runs of equal time differ in their steps, so they are not paired"
        case "used":
            return f"another value gives other losses ({loss} after {found.steps} steps)"
        case "ignored":
            change = "the number of runs would say nothing about noise; " if name == "{seed}" else ""
            return (
                f"another value changes nothing, neither the losses ({loss}) nor the memory: the script ignores the "
                f"option that {name} fills; {change}give the option that it reads, or omit {name}"
            )
        case "untrained_loss":
            return (
                f"another value changes the memory but no loss ({loss}); is the validation loss that of a model before "
                "training? Let the script evaluate at its end"
            )
        case "unknown":
            return "equal commands gave different losses, so whether this changes anything is not known"
        case _ as never:
            assert_never(never)


def _start_loss(found: StartLoss) -> str:
    if found.found == "not_finite":
        return (
            f"the loss is {found.loss} before any training; look for a logarithm of 0, a division by 0 or a mean over "
            "no targets in your loss function"
        )
    text = f"{found.loss:.4g} before training"
    if found.vocabulary is not None:
        text += f"; a uniform prediction gives ln({found.vocabulary:,}) = {math.log(found.vocabulary):.3g}"
    match found.found:
        case "finite":
            return text
        case "far_above_uniform":
            return f"{text}. It is far above that, so the first steps only undo the initialisation"
        case "far_below_uniform":
            return f"{text}. It is far below that, as for a pretrained model"
        case _ as never:
            assert_never(never)


def _reduction(found: ReductionFinding) -> str:
    losses = found.losses
    half = losses.samples // 2
    measured = (
        f"loss of {losses.samples} samples {losses.whole:.4g}, of its halves {losses.first:.4g} and {losses.second:.4g}"
    )
    match found.found:
        case "mean":
            return f"a mean: {measured}"
        case "sum":
            return f"a sum, as declared: {measured}"
        case "sum_with_count":
            return f"a sum with its own count, {found.own_count:g} targets in {losses.samples} samples"
        case "sum_not_declared":
            return (
                f"the loss is a sum ({measured}), so the learning rate would grow with the batch; return a mean, or "
                'pass reduction="sum"'
            )
        case "mean_declared_as_sum":
            return f'the loss is a mean ({measured}), not a sum; omit reduction="sum"'
        case "mean_with_count":
            return f"the loss returns (mean, count); return (sum over the targets, count) instead ({measured})"
        case "count_differs":
            return (
                f"the loss counts {found.own_count:g} targets in {losses.samples} samples, but {found.count:g} are "
                "expected before the forward pass; pass count=…, a function of the batch that gives the same number"
            )
        case "mean_over_other_targets":
            low, high = found.target_ratio or (math.nan, math.nan)
            return (
                "the loss is a mean over other targets than those counted "
                f"({low:.2g} to {high:.2g} times as many, depending on the sample, as with padding); pass "
                "count=…, e.g. a function that counts the targets that are not padding, or return (sum, count)"
            )
        case "neither":
            return (
                f"neither a mean nor a sum over {half} + {half} samples, so samples influence each other ({measured})"
            )
        case "zero":
            return "cannot tell: the loss is exactly 0 before training"
        case "not_finite":
            return "not tested: the loss is not finite"
        case "not_repeatable":
            return "not tested: the same batch gives different losses (see 'evaluation')"
        case _ as never:
            assert_never(never)


def _splitting(found: SplittingFinding) -> str:
    size, half = found.samples, found.samples // 2
    percent = 100 * (found.difference or 0.0)
    match found.found:
        case "equal":
            return f"gradients of {size} samples and of {half} + {half} agree to {found.difference:.0e}"
        case "mixes":
            layer = found.layer or "the loss function"
            statistics = "; its statistics depend on the batch" if "norm" in (found.layer or "").lower() else ""
            return (
                f"{layer} mixes samples{statistics}: gradients of {size} and of {half} + {half} samples differ by "
                f"{percent:.1f} %. Batches are never split, so the largest batch is the largest that fits at once"
            )
        case "declared_dependent":
            return "declared sample_independent=False: batches are never split"
        case "no_gradient":
            return "not tested: no gradient reaches any parameter"
        case "not_repeatable":
            return (
                f"not tested: with dropout off, the same batch twice gives gradients that differ by {percent:.1f} %, "
                "because something else is random. If samples of a batch influence each other, pass "
                "sample_independent=False"
            )
        case "reduction_unknown":
            return "not tested: fix 'mean or sum' first"
        case _ as never:
            assert_never(never)


def _seeds(found: SeedFinding) -> str:
    match found.found:
        case "honoured":
            return "the same seed gives the same initial parameters to the bit, another seed gives others"
        case "starts_equal":
            return "the same seed gives the same initial parameters to the bit"
        case "same_module":
            return (
                "the model continues from where the last run ended: model= returns the same module every time; build "
                "a new one inside the function"
            )
        case "not_seeded":
            return (
                f"seed 0 twice gives different parameters (first in {found.parameter}); draw them from the global "
                "random numbers of the framework or of numpy, which are seeded before model= is called"
            )
        case "ignored":
            return (
                "every seed gives the same parameters (loaded, or seeded inside model=), so seeds measure only the "
                "order of the data and dropout"
            )
        case _ as never:
            assert_never(never)


def _learning_rate(found: LearningRateFinding) -> str:
    optimizer = "your optimizer" if found.own_optimizer else "the optimizer"
    if found.group is not None:
        optimizer += f" ({describe_group(found.group)})"
    remedy = "read lr from param_groups at every step and leave schedules to batchlab"
    match found.found:
        case "honoured":
            return (
                f"at 0 nothing moves; at twice the rate parameters move {found.distance_ratio:.2g} × as far in three "
                "steps"
            )
        case "groups_follow":
            return "every parameter group follows the learning rate it is given"
        case "groups_ignore":
            return (
                "a parameter group does not follow args.learning_rate, so the sweep would not change it; build the "
                "optimizer with args.learning_rate, or a multiple of it"
            )
        case "moves_at_zero":
            return f"{optimizer} moves the parameters at learning rate 0, so it has a rate of its own; {remedy}"
        case "moves_nothing":
            return f"{optimizer} moves nothing in three steps at {found.learning_rate:g}; {remedy}"
        case "ignores_changes":
            return f"{optimizer} moves the parameters equally at {found.learning_rate:g} and at twice that; {remedy}"
        case "no_gradient":
            return "not tested: no gradient reaches any parameter"
        case "parameters_not_finite":
            return f"not tested: parameters are not finite after three steps at {2 * found.learning_rate:g}"
        case _ as never:
            assert_never(never)


def _evaluation(found: EvaluationFinding) -> str:
    one, other = found.losses
    match found.found:
        case "pure":
            return "repeats to the bit and changes nothing"
        case "random":
            return (
                f"evaluating the same batch twice gives {one:.6g} and {other:.6g}; switch off what is random in "
                "evaluation (is dropout called with training=True, or model.train() in your loss function?)"
            )
        case "draws":
            return (
                f"the loss draws random numbers in evaluation ({one:.6g}, and {other:.6g} with others). Every run is "
                "evaluated with the same draws, and their spread is measured. Right for a diffusion loss; if none are "
                "meant, dropout stays on (training=True?)"
            )
        case "depends_on_order":
            return (
                f"the loss of a batch changes with the order of its samples ({one:.6g} and {other:.6g}); in evaluation "
                "samples must not influence each other (is BatchNorm in training mode?)"
            )
        case "changes_parameters":
            return "evaluation changes parameters; compute the loss without training on it"
        case "changes_state":
            return (
                "evaluation changes the model's buffers or random state; do not call model.train() or draw random "
                "numbers in your loss function or metric"
            )
        case "changes_training":
            return "a training step after an evaluation differs from one without it; keep no state in the loss function"
        case "training_not_repeatable":
            return (
                "repeats to the bit; a training step repeated from the same state does not, so resumed runs may differ"
            )
        case _ as never:
            assert_never(never)


def _gradients(found: GradientFinding) -> str:
    match found.found:
        case "all":
            return (
                f"reach all {format_count(found.parameter_count)} parameters ({format_plural(found.tensors, 'tensor')})"
            )
        case "none":
            return "no gradient reaches any parameter; is the model's output detached from the loss?"
        case "not_finite":
            return f"the gradient of {found.names[0]} is not finite at step {found.step}"
        case "some":
            more = len(found.names) - _SHOWN_NAMES
            listed = ", ".join(found.names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
            return f"none reaches {listed} ({len(found.names)} of {found.tensors} tensors); are they meant to be used?"
        case _ as never:
            assert_never(never)


def _overlap(found: OverlapFinding) -> str:
    match found.found:
        case "none":
            return "not found in the training data"
        case "some":
            return f"{100 * found.share:.1f} % of the held-out data is also in the training data"
        case "leaked":
            return (
                f"{100 * found.share:.0f} % of the held-out data is also in the training data, so a held-out loss "
                "would measure memorisation; hold out other data"
            )
        case _ as never:
            assert_never(never)


def _data_size(found: DataSizeFinding) -> str:
    text = f"{found.train_samples:,} training and {found.valid_samples:,} held-out samples"
    match found.found:
        case "enough":
            return text
        case "few":
            return f"{text}; that is very little"
        case "fewer_than_largest_batch":
            return f"{text}; a batch of {found.largest_batch:,} repeats some samples"
        case "too_few":
            return f"{text}; give at least 2 and 1"
        case _ as never:
            assert_never(never)
