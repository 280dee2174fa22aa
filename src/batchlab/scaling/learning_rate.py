"""The learning rate at another batch size of the same model and budget.

Measured on the Step Law table (benchmarks/scaling_step_law/results.md): below the best batch size B_opt the tuned
learning rate rises faster than √B, above it it is flat. The default is therefore lr_max/(1 + B_opt/B), McCandlish's
form with Adam's exponent 1 and the noise scale taken to be B_opt, held constant above B_opt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from batchlab.core.experiment import AcrossBatch
from batchlab.scaling.answer import Refused, Scaled, Scaling, format_size, refuse_unless_positive

REACH = 8.0
"""No learning rate is extrapolated further than this factor in batch size: the rules were tested that far."""

HALF_LIFE_EXPONENT = 1 / 3
"""Learning rate ∝ B^⅓ with beta2's half-life in tokens held: 2⁻¹¹ at batch 1 to 2⁻⁸ at 512 (Marek et al. 2025)."""


class LearningRateRule(StrEnum):
    """How a learning rate follows the batch size."""

    SATURATING = "saturating"
    UNCAPPED = "uncapped"
    SQUARE_ROOT = "square_root"
    LINEAR = "linear"
    NONE = "none"


_SOURCE = {
    LearningRateRule.SATURATING: (
        "form: McCandlish et al. 2018, arXiv:1812.06162; held above B_opt and tested on the Step Law table "
        "(arXiv:2503.04715)"
    ),
    LearningRateRule.UNCAPPED: "McCandlish et al. 2018, arXiv:1812.06162, with the noise scale taken to be B_opt",
    LearningRateRule.SQUARE_ROOT: "Malladi et al. 2022, arXiv:2205.10287, for Adam in the noise-dominated regime",
    LearningRateRule.LINEAR: "Goyal et al. 2017, arXiv:1706.02677, for SGD; for Adam far below B_opt only",
    LearningRateRule.NONE: "no rule: the measured learning rate kept",
}

# 95 % of the moves on the Step Law table that are not refused ended within this many doublings of the learning rate tuned
# at their end; the doubt of tuning at both ends is in it, so it hardly grows with the distance.
_SCATTER = {
    LearningRateRule.SATURATING: 0.8,
    LearningRateRule.UNCAPPED: 1.0,
    LearningRateRule.SQUARE_ROOT: 1.0,
    LearningRateRule.LINEAR: 1.0,
    LearningRateRule.NONE: 2.0,
}


def learning_rate_ratio(
    rule: LearningRateRule, from_batch: float, to_batch: float, best_batch_size: float = math.inf
) -> float:
    """The bare formula, without range or refusal: learning rate at `to_batch` ÷ learning rate at `from_batch`."""
    match rule:
        case LearningRateRule.SATURATING:
            start, end = min(from_batch, best_batch_size), min(to_batch, best_batch_size)
            return _saturating(start, end, best_batch_size)
        case LearningRateRule.UNCAPPED:
            return _saturating(from_batch, to_batch, best_batch_size)
        case LearningRateRule.SQUARE_ROOT:
            return math.sqrt(to_batch / from_batch)
        case LearningRateRule.LINEAR:
            return to_batch / from_batch
        case LearningRateRule.NONE:
            return 1.0


def learning_rate_at(
    learning_rate: float,
    from_batch: float,
    to_batch: float,
    rule: LearningRateRule = LearningRateRule.SATURATING,
    *,
    best_batch_size: float | Scaled | None = None,
    across_batch: AcrossBatch = AcrossBatch.FIXED,
) -> Scaling:
    """The learning rate tuned at `from_batch`, carried to `to_batch` at the same model and token budget.

    `best_batch_size` is B_opt, the batch with the lowest tuned loss at this budget, in the same unit. Where beta2
    follows the batch (`across_batch` other than fixed) the interval also covers the slower rise seen by Marek et al.
    """
    best = best_batch_size.value if isinstance(best_batch_size, Scaled) else best_batch_size
    given = {"learning_rate": learning_rate, "batch_size": from_batch, "target_batch_size": to_batch}
    if refusal := refuse_unless_positive(**given, **({} if best is None else {"best_batch_size": best})):
        return refusal
    if from_batch == to_batch:
        return Scaled(
            learning_rate, "the same batch size: nothing to extrapolate", "the measurement itself", "this batch"
        )
    factor = to_batch / from_batch
    if not 1 / REACH <= factor <= REACH:
        ends = f"{format_size(from_batch / REACH)} to {format_size(from_batch * REACH)}"
        return Refused(
            f"Batch {format_size(to_batch)} is {max(factor, 1 / factor):.3g} × away from {format_size(from_batch)}, where "
            f"the learning rate was tuned; it is carried at most {REACH:g} ×, to {ends}. Tune it nearer."
        )
    if refusal := _refuse_rule(rule, from_batch, to_batch, best):
        return refusal
    bound = math.inf if best is None else best
    ratio = learning_rate_ratio(rule, from_batch, to_batch, bound)
    ratios = [ratio]
    if isinstance(best_batch_size, Scaled):
        ends_of_best = [end for end in (best_batch_size.low, best_batch_size.high) if end is not None]
        ratios += [learning_rate_ratio(rule, from_batch, to_batch, end) for end in ends_of_best]
    if across_batch is not AcrossBatch.FIXED:
        ratios.append(factor**HALF_LIFE_EXPONENT)
    scatter = 2 ** _SCATTER[rule]
    return Scaled(
        learning_rate * ratio,
        rule=_describe(rule, from_batch, to_batch, best),
        source=_SOURCE[rule],
        range=_range(rule, from_batch, best, across_batch),
        low=learning_rate * min(ratios) / scatter,
        high=learning_rate * max(ratios) * scatter,
    )


def learning_rate_between(
    tuned: Mapping[float, float],
    to_batch: float,
    rule: LearningRateRule = LearningRateRule.SATURATING,
    *,
    best_batch_size: float | Scaled | None = None,
    across_batch: AcrossBatch = AcrossBatch.FIXED,
) -> Scaling:
    """The learning rate at `to_batch` from a study's own tuned ones (batch size → learning rate).

    Between two measured sizes at most 8 × apart it is interpolated, log against log, and no rule is needed; outside
    them the nearest measured size is extrapolated by `rule`.
    """
    if not tuned:
        return Refused(
            "No batch size has a tuned learning rate, so there is nothing to extrapolate; run the study first."
        )
    for size, learning_rate in ((to_batch, 1.0), *tuned.items()):
        if refusal := refuse_unless_positive(batch_size=size, learning_rate=learning_rate):
            return refusal
    below = max((size for size in tuned if size <= to_batch), default=None)
    above = min((size for size in tuned if size >= to_batch), default=None)
    if below is None or above is None or below == above or above / below > REACH:
        nearest = min(tuned, key=lambda size: (abs(math.log(size / to_batch)), size))
        return learning_rate_at(
            tuned[nearest], nearest, to_batch, rule, best_batch_size=best_batch_size, across_batch=across_batch
        )
    share = math.log(to_batch / below) / math.log(above / below)
    low, high = sorted((tuned[below], tuned[above]))
    return Scaled(
        tuned[below] ** (1 - share) * tuned[above] ** share,
        rule=f"interpolated between the tuned learning rates of batch {format_size(below)} and {format_size(above)}",
        source="this study",
        range=f"batch {format_size(below)} to {format_size(above)}",
        low=low,
        high=high,
    )


def _saturating(from_batch: float, to_batch: float, best: float) -> float:
    # (1 + best/from)/(1 + best/to), multiplied out so that an unknown, infinite best gives the linear limit
    if math.isinf(best):
        return to_batch / from_batch
    return (to_batch * (from_batch + best)) / (from_batch * (to_batch + best))


def _refuse_rule(rule: LearningRateRule, from_batch: float, to_batch: float, best: float | None) -> Refused | None:
    larger = max(from_batch, to_batch)
    if best is None and rule in (LearningRateRule.SATURATING, LearningRateRule.UNCAPPED, LearningRateRule.LINEAR):
        return Refused(
            f"The {_name(rule)} rule needs the best batch size B_opt, because the learning rate stops rising there; "
            "measure it with a study around it, give a published estimate, or keep the learning rate."
        )
    if best is not None and rule is LearningRateRule.LINEAR and larger > best:
        return Refused(
            f"The linear rule ends at the best batch size, {format_size(best)}, and this move reaches {format_size(larger)}: "
            "beyond it, learning rates set in proportion diverged in tests. Use the saturating rule."
        )
    if best is not None and rule is LearningRateRule.SQUARE_ROOT and larger > best:
        return Refused(
            f"The square-root rule holds while noise outweighs the gradient, below the best batch size "
            f"{format_size(best)}; this move reaches {format_size(larger)}. Use the saturating rule."
        )
    return None


def _name(rule: LearningRateRule) -> str:
    return rule.value.replace("_", "-")


def _describe(rule: LearningRateRule, from_batch: float, to_batch: float, best: float | None) -> str:
    move = f"batch {format_size(from_batch)} → {format_size(to_batch)}"
    match rule:
        case LearningRateRule.SATURATING:
            assert best is not None
            return f"lr_max/(1 + B_opt/B) up to B_opt = {format_size(best)}, the same above; {move}"
        case LearningRateRule.UNCAPPED:
            assert best is not None
            return f"lr_max/(1 + B_opt/B), B_opt = {format_size(best)}; {move}"
        case LearningRateRule.SQUARE_ROOT:
            return f"learning rate ∝ √B; {move}"
        case LearningRateRule.LINEAR:
            return f"learning rate ∝ B; {move}"
        case LearningRateRule.NONE:
            return f"learning rate kept; {move}"


def _range(rule: LearningRateRule, from_batch: float, best: float | None, across_batch: AcrossBatch) -> str:
    low, high = from_batch / REACH, from_batch * REACH
    if best is not None and rule in (LearningRateRule.LINEAR, LearningRateRule.SQUARE_ROOT):
        high = min(high, best)
    text = f"batch {format_size(low)} to {format_size(high)}, same model and budget"
    if across_batch is not AcrossBatch.FIXED:
        text += "; tested with beta2 and weight decay fixed, here beta2 follows the batch, where the rise was slower"
    return text
