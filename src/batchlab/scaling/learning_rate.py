"""The learning rate at another batch size of the same model and budget.

Below the best batch size B_opt the tuned learning rate follows lr_max/(1 + B_opt/B), McCandlish's form with Adam's
exponent 1 and the noise scale taken to be B_opt (benchmarks/scaling_step_law/results.md). Above B_opt tables disagree.
On the dense models of the Step Law table it is flat; mixture-of-experts models of the same authors follow the formula
further. The default is the cube root of the formula's rise there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from batchlab.core.experiment import AcrossBatch
from batchlab.scaling.answer import Refused, Scaled, Scaling, refuse_unless_positive
from batchlab.scaling.refusals import AboveBestBatch, BatchTooFar, NeedsBestBatch, NothingTuned
from batchlab.scaling.rules import BatchRule, Interpolated, LearningRateRule, SameBatch

REACH = 8.0
"""No learning rate is extrapolated further than this factor in batch size: the rules were tested that far."""

ABOVE_BEST = 1 / 3
"""Power of the formula's rise above B_opt. It costs 0.06 % more at the 90th percentile where the learning rate is flat,
and saves a third of the distance, in doublings, where it is not."""

HALF_LIFE_EXPONENT = 1 / 3
"""Learning rate ∝ B^⅓ with beta2's half-life in tokens held: 2⁻¹¹ at batch 1 to 2⁻⁸ at 512 (Marek et al. 2025)."""


# 95 % of the moves on the Step Law table that are not refused ended within this many doublings of the learning rate
# tuned at their end. The error of tuning at both ends is included, so it hardly grows with the distance.
_SCATTER = {
    LearningRateRule.SATURATING: 0.8,
    LearningRateRule.UNCAPPED: 1.0,
    LearningRateRule.SQUARE_ROOT: 1.0,
    LearningRateRule.LINEAR: 1.0,
    LearningRateRule.NONE: 2.0,
}

# Rules that hold only where gradient noise outweighs the gradient.
_BELOW_BEST = (LearningRateRule.LINEAR, LearningRateRule.SQUARE_ROOT)


def learning_rate_ratio(
    rule: LearningRateRule, from_batch: float, to_batch: float, best_batch_size: float = math.inf
) -> float:
    """The bare formula, without range or refusal: learning rate at `to_batch` ÷ learning rate at `from_batch`.

    `best_batch_size` may be 0 or infinite, where B_opt is bounded on one side only.
    """
    match rule:
        case LearningRateRule.SATURATING if math.isinf(best_batch_size):
            return to_batch / from_batch
        case LearningRateRule.SATURATING:
            best = best_batch_size
            below = _saturating(min(from_batch, best), min(to_batch, best), best)
            above = _saturating(max(from_batch, best), max(to_batch, best), best)
            return float(below * above**ABOVE_BEST)
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
    """The learning rate tuned at `from_batch`, extrapolated to `to_batch` at the same model and token budget.

    `best_batch_size` is B_opt, the batch with the lowest tuned loss at this budget, in the same unit. Where beta2
    follows the batch (`across_batch` other than fixed) the interval also covers the slower rise seen by Marek et al.
    """
    best = best_batch_size.value if isinstance(best_batch_size, Scaled) else best_batch_size
    given = {"learning_rate": learning_rate, "batch_size": from_batch, "target_batch_size": to_batch}
    if refusal := refuse_unless_positive(**given, **({} if best is None else {"best_batch_size": best})):
        return refusal
    if from_batch == to_batch:
        return Scaled(learning_rate, SameBatch())
    factor = to_batch / from_batch
    if not 1 / REACH <= factor <= REACH:
        return Refused(BatchTooFar(from_batch, to_batch, REACH))
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
        _batch_rule(rule, from_batch, to_batch, best, across_batch),
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
        return Refused(NothingTuned())
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
        Interpolated(below, above),
        low=low,
        high=high,
    )


def _saturating(from_batch: float, to_batch: float, best: float) -> float:
    # (1 + best/from)/(1 + best/to), multiplied out so that an unknown, infinite best gives the linear limit
    if math.isinf(best):
        return to_batch / from_batch
    if best == 0:
        return 1.0
    return (to_batch * (from_batch + best)) / (from_batch * (to_batch + best))


def _refuse_rule(rule: LearningRateRule, from_batch: float, to_batch: float, best: float | None) -> Refused | None:
    larger = max(from_batch, to_batch)
    if best is None and rule in (LearningRateRule.SATURATING, LearningRateRule.UNCAPPED, LearningRateRule.LINEAR):
        return Refused(NeedsBestBatch(rule))
    if best is not None and rule in _BELOW_BEST and larger > best:
        return Refused(AboveBestBatch(rule, best, larger))
    return None


def _batch_rule(
    rule: LearningRateRule, from_batch: float, to_batch: float, best: float | None, across_batch: AcrossBatch
) -> BatchRule:
    largest = from_batch * REACH
    if best is not None and rule in _BELOW_BEST:
        largest = min(largest, best)
    return BatchRule(rule, from_batch, to_batch, best, across_batch, smallest=from_batch / REACH, largest=largest)
