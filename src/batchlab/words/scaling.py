"""Where an extrapolated number comes from: what was done, who showed the rule, where it holds, what confirms it."""

from __future__ import annotations

import math
from typing import assert_never

from batchlab.analysis.extrapolation import Caveat
from batchlab.core.batch import Unit
from batchlab.core.experiment import AcrossBatch
from batchlab.core.format import format_count, format_learning_rate, format_list, format_size
from batchlab.scaling import (
    CellRuns,
    Confirmation,
    Exponent,
    LearningRateRule,
    PairOfRuns,
    PublishedLaw,
    Scaled,
    SmallStudy,
)
from batchlab.scaling.published import (
    BERGSMA,
    DEEPSEEK,
    GOYAL,
    LI,
    MALLADI,
    MAREK,
    MCCANDLISH,
    POWER_LINES,
    STEP_LAW,
    Formula,
)
from batchlab.scaling.rules import (
    Axis,
    BatchRule,
    Chained,
    HalfLifeRule,
    Interpolated,
    LawRule,
    LowestLoss,
    PowerLawRule,
    Quantity,
    Rule,
    SameBatch,
    SdeRule,
    TimescaleRule,
    WarmupRule,
)

THIS_STUDY = "this study"

_RATE_RULE_SOURCES = {
    LearningRateRule.SATURATING: (
        f"form: {MCCANDLISH.citation}; tested on the Step Law table (arXiv:{LI.arxiv}), whose dense models are flat "
        "above B_opt; models with experts are not"
    ),
    LearningRateRule.UNCAPPED: f"{MCCANDLISH.citation}, with the noise scale taken to be B_opt",
    LearningRateRule.SQUARE_ROOT: f"{MALLADI.citation}, for Adam in the noise-dominated regime",
    LearningRateRule.LINEAR: f"{GOYAL.citation}, for SGD; for Adam far below B_opt only",
    LearningRateRule.NONE: "no rule: the measured learning rate kept",
}

_TABLE = "tested with beta2, epsilon, weight decay and warm-up steps fixed"
_SHOWN_UNDER = {
    LearningRateRule.SATURATING: _TABLE,
    LearningRateRule.UNCAPPED: _TABLE,
    LearningRateRule.SQUARE_ROOT: "derived with beta1, beta2 and epsilon following the batch, without weight decay",
    LearningRateRule.LINEAR: "shown for SGD with momentum, weight decay fixed, warm-up over five epochs",
    LearningRateRule.NONE: _TABLE,
}
"""Under which time constants each rule was shown."""

_LAW_CAVEATS = {
    DEEPSEEK.key: "fitted along one path of D/N, so compute stands for both; C counted as 6·N·D here, by model scale "
    "there",
    STEP_LAW.key: "AdamW with betas, weight decay and final learning rate fixed; contested at other recipes by factors "
    "of up to 4",
    POWER_LINES.key: "the coefficient is from a secondary source; µP models, learning rate decayed to zero",
}

_CAVEATS = {
    Caveat.SMALLEST_BATCH_IS_BEST: "the best batch was the smallest tried, so B_opt may be smaller",
    Caveat.LARGEST_BATCH_IS_BEST: "the best batch was the largest tried, so B_opt may be larger",
    Caveat.SMALLEST_BATCH_IS_TIED: "the smallest batch tried is tied with the best, so B_opt has no lower bound",
    Caveat.LARGEST_BATCH_IS_TIED: "the largest batch tried is tied with the best, so B_opt has no upper bound",
    Caveat.OPTIMIZER_IS_NOT_ADAM: "the rules were tested with AdamW only",
}

_SYMBOLS = {
    Quantity.BATCH_SIZE: "B_opt",
    Quantity.LEARNING_RATE: "learning rate at B_opt",
    Axis.BUDGET: "D",
    Axis.MODEL_SIZE: "N",
}


def describe_rule(rule: Rule) -> str:
    """What was done, with the numbers that went in."""
    match rule:
        case LowestLoss(quantity=Quantity.BATCH_SIZE):
            return "the batch size with the lowest mean loss of those tried"
        case LowestLoss():
            return "the best learning rate tried there"
        case SameBatch():
            return "the same batch size: nothing to extrapolate"
        case Interpolated(below, above):
            ends = f"{format_size(below)} and {format_size(above)}"
            return f"interpolated between the tuned learning rates of batch {ends}"
        case BatchRule():
            return f"{_formula_of(rule)}; batch {format_size(rule.from_batch)} → {format_size(rule.to_batch)}"
        case PowerLawRule():
            return _power_law(rule)
        case LawRule(quantity, law):
            formula = law.batch_tokens if quantity is Quantity.BATCH_SIZE else law.learning_rate
            assert formula is not None
            return f"{law.name}: {describe_formula(formula, quantity)}"
        case HalfLifeRule():
            limits = f"within {rule.low:g} to {rule.high:g}"
            return f"half-life in tokens held: {rule.beta2:g}^{rule.batch_ratio:g}, {limits}"
        case SdeRule():
            return f"1 − κ(1 − beta) with κ = {rule.batch_ratio:g}"
        case TimescaleRule():
            text = (
                f"timescale in tokens held: × {rule.batch_ratio:.3g} (batch) ÷ {rule.learning_rate_ratio:.3g} "
                "(learning rate)"
            )
            return text + (
                f" ÷ {rule.budget_ratio:.3g}^{rule.budget_exponent:.2f} (budget)" if rule.budget_ratio != 1 else ""
            )
        case WarmupRule():
            return "the same tokens at every batch size, the same share of every budget"
        case Chained(first, then):
            return f"{describe_rule(first)}; then {describe_rule(then)}"
        case _:
            assert_never(rule)


def describe_source(rule: Rule) -> str:
    """Who showed it, and on what."""
    match rule:
        case LowestLoss() | Interpolated():
            return THIS_STUDY
        case SameBatch():
            return "the measurement itself"
        case BatchRule():
            return _RATE_RULE_SOURCES[rule.rule]
        case PowerLawRule(law=law) if law.measured is None:
            return describe_exponent(rule.published)
        case PowerLawRule():
            return f"{THIS_STUDY}, {_measured_at(rule)}, weighed against {describe_exponent(rule.published)}"
        case LawRule(law=law):
            return law.paper.citation
        case HalfLifeRule():
            return f"{MAREK.citation}: one half-life in tokens was near best from batch 1 to 1,024"
        case SdeRule():
            return f"{MALLADI.citation}; belongs with the square-root learning rate and eps ÷ √κ"
        case TimescaleRule():
            return f"{BERGSMA.citation} (Power Lines); its exponent of the budget not checked by us"
        case WarmupRule():
            return "batchlab's schedules run in tokens; no law of warm-up is claimed"
        case Chained(first, then):
            return f"{describe_source(first)}; {describe_source(then)}"
        case _:
            assert_never(rule)


def describe_range(rule: Rule) -> str:
    """Where it was shown to hold."""
    match rule:
        case LowestLoss(smallest=low, largest=high) | Interpolated(low, high):
            return f"batch {format_size(low)} to {format_size(high)}"
        case SameBatch():
            return "this batch"
        case BatchRule():
            text = f"batch {format_size(rule.smallest)} to {format_size(rule.largest)}, same model and budget"
            return f"{text}; {_SHOWN_UNDER[rule.rule]}{_otherwise(rule)}"
        case PowerLawRule():
            return f"{_SYMBOLS[rule.axis]} from {format_count(rule.low)} to {format_count(rule.high)}"
        case LawRule():
            ends = f"{format_count(rule.low)} to {format_count(rule.high)}"
            return f"tested on {ends} tokens of text; {describe_law_caveat(rule.law)}"
        case HalfLifeRule():
            return f"beta2 from {rule.low:g} to {rule.high:g}; it is kept at these ends"
        case SdeRule():
            return f"κ below {rule.most:.3g}, and only while gradient noise outweighs the gradient"
        case TimescaleRule():
            return "below the critical batch size, at the same model; shown with µP and decay to zero"
        case WarmupRule():
            return f"at least {rule.fewest_steps} steps of warm-up"
        case Chained(first, then):
            return f"{describe_range(first)}; {describe_range(then)}"
        case _:
            assert_never(rule)


def _otherwise(rule: BatchRule) -> str:
    """Where the study's own time constants are not those that the rule was shown under."""
    fixed = rule.across_batch is AcrossBatch.FIXED
    if fixed and rule.rule is LearningRateRule.SQUARE_ROOT:
        return ", here they are fixed"
    if not fixed and rule.rule is not LearningRateRule.SQUARE_ROOT:
        return ", here beta2 and epsilon follow the batch, where the rise was slower"
    return ""


def describe_caveat(caveat: Caveat) -> str:
    """What else limits an extrapolated optimum."""
    return _CAVEATS[caveat]


def describe_batch_interval(batch: Scaled) -> str:
    """`near 32 [16, 90]`; `near 32 (at most 90)` where it is bounded on one side only."""
    low, high = batch.low or 0.0, math.inf if batch.high is None else batch.high
    text = f"near {batch.value:.3g}"
    if low > 0 and high < math.inf:
        return f"{text} [{low:.3g}, {high:.3g}]"
    if low > 0 or high < math.inf:
        return f"{text} (at {f'least {low:.3g}' if low > 0 else f'most {high:.3g}'})"
    return text


def describe_law_caveat(law: PublishedLaw) -> str:
    """The limits of a published law."""
    return _LAW_CAVEATS[law.key]


def describe_formula(formula: Formula, quantity: Quantity) -> str:
    """`0.58 · D^0.571 tokens`."""
    powers = {"N": formula.parameters, "D": formula.tokens, "C": formula.compute}
    factors = [f"{symbol}^{_signed(power)}" for symbol, power in powers.items() if power]
    text = " · ".join([f"{formula.coefficient:g}", *factors])
    if quantity is Quantity.BATCH_SIZE:
        length = formula.sequence_length
        text += " tokens" if length == 1 else f" sequences of {length:,} tokens"
    return f"{text}, C = 6·N·D" if formula.compute else text


def describe_exponent(exponent: Exponent) -> str:
    """The published values behind it, `published exponents 0.33 (DeepSeek-AI 2024, of compute) and …`."""
    values = [reported.value for reported in exponent.reported]
    texts = [
        f"{_signed(reported.value)} ({', '.join(filter(None, (reported.paper.name, reported.note)))})"
        for reported in exponent.reported
    ]
    text = f"published exponent{'s' if len(texts) > 1 else ''} {format_list(texts)}"
    return f"{text}: the sign is open" if min(values) < 0 < max(values) else text


def describe_confirmation(runs: Confirmation, unit: Unit) -> str:
    """The runs to make, and what would count as confirmed."""
    budget = f"{format_count(runs.token_budget)} {unit.value}"
    match runs:
        case CellRuns():
            count = "1 run" if len(runs.learning_rates) == 1 else f"{len(runs.learning_rates)} runs"
            rates = format_list([format_learning_rate(rate) for rate in runs.learning_rates])
            return (
                f"{count} of {budget} at batch {format_size(runs.batch_size)}, learning rate {rates}: confirmed if no "
                "measured cell beats the first by more than noise"
            )
        case PairOfRuns():
            return (
                f"2 runs of {budget}: {_place(runs.batch_size, runs.learning_rate)}, and "
                f"{_place(runs.measured.best_batch_size, runs.measured.learning_rate)} as measured at "
                f"{format_count(runs.measured.token_budget)}: confirmed if the first is better"
            )
        case SmallStudy():
            model = "" if runs.parameters is None else f"with the model of {format_count(runs.parameters)} parameters "
            what = "budget" if runs.parameters is None else "model size"
            return (
                f"a study of {runs.runs} runs at {budget} {model}around batch {format_size(runs.batch_size)} and "
                f"learning rate {format_learning_rate(runs.learning_rate)}, {format_count(runs.tokens)} {unit.value} "
                f"in all: it measures how the optimum moves with the {what}"
            )
        case _:
            assert_never(runs)


def _place(batch_size: float, learning_rate: float) -> str:
    return f"batch {format_size(batch_size)} at learning rate {format_learning_rate(learning_rate)}"


def _formula_of(rule: BatchRule) -> str:
    best = "unknown" if rule.best_batch_size is None else format_size(rule.best_batch_size)
    match rule.rule:
        case LearningRateRule.SATURATING:
            return f"lr_max/(1 + B_opt/B) up to B_opt = {best}, the cube root of its rise above"
        case LearningRateRule.UNCAPPED:
            return f"lr_max/(1 + B_opt/B), B_opt = {best}"
        case LearningRateRule.SQUARE_ROOT:
            return "learning rate ∝ √B"
        case LearningRateRule.LINEAR:
            return "learning rate ∝ B"
        case LearningRateRule.NONE:
            return "learning rate kept"
        case _:
            assert_never(rule.rule)


def _power_law(rule: PowerLawRule) -> str:
    law, axis = rule.law, _SYMBOLS[rule.axis]
    exponent = f"{_signed(law.exponent, '.2f')} [{_signed(law.low, '.2f')}, {_signed(law.high, '.2f')}]"
    text = f"{_SYMBOLS[rule.quantity]} ∝ {axis}^{exponent}"
    if law.measured is None:
        return f"{text}, the published exponent from the optimum at {_measured_at(rule)}"
    measured = "budgets" if rule.axis is Axis.BUDGET else "model sizes"
    return f"{text}, {_signed(law.measured, '.2f')} from {len(rule.measured_at)} measured {measured} alone"


def _measured_at(rule: PowerLawRule) -> str:
    """The ends of what was measured."""
    return format_list([format_count(x) for x in sorted({rule.measured_at[0], rule.measured_at[-1]})])


def _signed(number: float, form: str = "g") -> str:
    return f"{number:{form}}".replace("-", "−")
