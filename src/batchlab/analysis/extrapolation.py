"""What a study's answer becomes at another batch size, token budget or model size: extrapolated by `scaling`, not
measured, each number with its rule and interval, and the cheapest runs that could show it to be wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, SurfaceFinding
from batchlab.core.experiment import AcrossBatch
from batchlab.core.spec import MIN_STEPS
from batchlab.scaling import (
    Confirmation,
    LearningRateRule,
    Optimum,
    Refused,
    Scaled,
    SmallStudy,
    beta2_by_half_life,
    confirm_batch,
    confirm_budget,
    learning_rate_at,
    learning_rate_between,
    optimum_at_budget,
    optimum_at_size,
    warmup_by_tokens,
    weight_decay_by_timescale,
    weight_decay_of,
)
from batchlab.scaling.refusals import AtEqualTime, NoAnswer, OptimumOnlyBounded, OtherOptimizer, TooFewSteps
from batchlab.scaling.rules import Chained, LowestLoss, Quantity
from batchlab.storage.decisions import PriorTrial


@dataclass(frozen=True, slots=True)
class Target:
    """Where to extrapolate the answer to; None: as in the study. `parameters` of a wider model of the same family.

    `rate_rule` moves the learning rate from the best batch size, also to a size that was measured; None: measured where
    it was, else interpolated or the default rule.
    """

    global_batch_size: int | None = None
    token_budget: int | None = None
    parameters: int | None = None
    rate_rule: LearningRateRule | None = None


class Caveat(StrEnum):
    """What an extrapolated optimum also suffers from, beside its rule's own limits."""

    SMALLEST_BATCH_IS_BEST = "smallest_batch_is_best"
    LARGEST_BATCH_IS_BEST = "largest_batch_is_best"
    SMALLEST_BATCH_IS_TIED = "smallest_batch_is_tied"
    LARGEST_BATCH_IS_TIED = "largest_batch_is_tied"
    OPTIMIZER_IS_NOT_ADAM = "optimizer_is_not_adam"


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """An answer that nobody measured. beta2 and weight decay None: as in the study. The caveats are of batch size and
    learning rate."""

    global_batch_size: int
    batch_size_from: Scaled | None  # None: asked for
    token_budget: int
    best_batch_size: Scaled
    learning_rate: Scaled
    caveats: tuple[Caveat, ...]
    warmup_tokens: Scaled
    beta2: Scaled | None
    weight_decay: Scaled | None
    confirmation: Confirmation


def extrapolate(found: Findings, target: Target) -> Extrapolation | Refused:
    """The answer at `target`, or why no rule reaches there."""
    surface = found.surface
    if surface is None or surface.best is None or surface.best.best is None or not found.token_budget:
        return Refused(NoAnswer())
    if found.run_seconds is not None:
        return Refused(AtEqualTime())
    budget = target.token_budget or found.token_budget
    moved = _optimum(found, surface, surface.best, target)
    if isinstance(moved, Refused):
        return moved
    best_batch, best_rate = moved
    elsewhere = target.token_budget is not None or target.parameters is not None
    if elsewhere and (refusal := _refuse_to_move(found, surface, surface.best, target)):
        return refusal
    size = target.global_batch_size or 2 ** max(0, round(math.log2(best_batch.value)))
    per_step = size * found.experiment.sequence_length
    budget = budget // per_step * per_step
    if budget < MIN_STEPS * per_step:
        return Refused(TooFewSteps(size, budget // per_step, budget, found.experiment.unit, MIN_STEPS))
    across = found.experiment.optimizer.across_batch
    if elsewhere or target.rate_rule is not None:
        rule = target.rate_rule or LearningRateRule.SATURATING
        rate = learning_rate_at(
            best_rate.value, best_batch.value, size, rule, best_batch_size=best_batch, across_batch=across
        )
    else:
        tuned = {float(row.global_batch_size): row.best.learning_rate for row in _tuned(surface) if row.best}
        rate = learning_rate_between(tuned, size, best_batch_size=best_batch, across_batch=across)
    if isinstance(rate, Refused):
        return rate
    rate = _widened(rate, best_rate) if elsewhere else rate
    warmup = warmup_by_tokens(found.schedule.warmup_tokens(budget, per_step), per_step)
    constants = _constants(found, size, budget, rate, surface.best)
    for number in (warmup, *constants):
        if isinstance(number, Refused):
            return number
    beta2, decay = constants
    assert isinstance(warmup, Scaled)
    return Extrapolation(
        global_batch_size=size,
        batch_size_from=best_batch if target.global_batch_size is None else None,
        token_budget=budget,
        best_batch_size=best_batch,
        learning_rate=rate,
        caveats=_caveats(found, surface),
        warmup_tokens=warmup,
        beta2=beta2 if isinstance(beta2, Scaled) else None,
        weight_decay=decay if isinstance(decay, Scaled) else None,
        confirmation=_confirmation(found, target, rate, size, best_batch),
    )


def measured_optimum(found: Findings) -> Optimum | None:
    """The best (batch, learning rate) of this study's own budget and model."""
    best = found.surface.best if found.surface else None
    if best is None or best.best is None or not found.token_budget:
        return None
    parameters = found.task_info.parameter_count
    size = None if parameters is None else float(parameters)
    return Optimum(found.token_budget, best.global_batch_size, best.best.learning_rate, size)


def _optimum(
    found: Findings, surface: SurfaceFinding, best: BatchRow, target: Target
) -> tuple[Scaled, Scaled] | Refused:
    """(B_opt, learning rate there) at the target's budget and model size."""
    own = measured_optimum(found)
    assert own is not None
    sizes = [row.global_batch_size for row in surface.rows]
    low, high = _bounds(surface)
    batch = Scaled(best.global_batch_size, LowestLoss(Quantity.BATCH_SIZE, sizes[0], sizes[-1]), low, high)
    rate = Scaled(own.learning_rate, LowestLoss(Quantity.LEARNING_RATE, sizes[0], sizes[-1]))
    if target.token_budget is not None and target.token_budget != found.token_budget:
        earlier = [optimum for optimum in found.earlier_optima if optimum.token_budget != own.token_budget]
        moved = optimum_at_budget([replace(own, parameters=None), *earlier], target.token_budget)
        if isinstance(moved.best_batch_size, Refused):
            return moved.best_batch_size
        assert isinstance(moved.learning_rate, Scaled)
        batch, rate = _widened(moved.best_batch_size, batch), moved.learning_rate
    if target.parameters is not None and target.parameters != found.task_info.parameter_count:
        here = Optimum(1.0, batch.value, rate.value, own.parameters)
        moved = optimum_at_size([here], target.parameters)
        if isinstance(moved.best_batch_size, Refused):
            return moved.best_batch_size
        assert isinstance(moved.learning_rate, Scaled)
        batch, rate = _widened(moved.best_batch_size, batch), _widened(moved.learning_rate, rate)
    return batch, rate


def _tuned(surface: SurfaceFinding) -> list[BatchRow]:
    """Sizes whose best learning rate lies between others; all judged ones where no size has that."""
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    return [row for row in judged if not row.edge and len(row.cells) > 1] or judged


def _widened(after: Scaled, before: Scaled) -> Scaled:
    """`after`, which was made from `before`, with the uncertainty and the rules of both."""
    low = _low(after) * _low(before) / before.value
    high = _high(after) * _high(before) / before.value
    rule = after.rule if isinstance(before.rule, LowestLoss) else Chained(before.rule, after.rule)
    return Scaled(after.value, rule, low, high)


def _low(scaled: Scaled) -> float:
    return scaled.value if scaled.low is None else scaled.low


def _high(scaled: Scaled) -> float:
    return scaled.value if scaled.high is None else scaled.high


def _bounds(surface: SurfaceFinding) -> tuple[float, float]:
    """Between which the best batch size lies: the statistically tied ones, open where they reach an end of the axis."""
    tied = [row.global_batch_size for row in surface.tied]
    sizes = [row.global_batch_size for row in surface.rows]
    return 0.0 if min(tied) == sizes[0] else min(tied), math.inf if max(tied) == sizes[-1] else max(tied)


def _refuse_to_move(found: Findings, surface: SurfaceFinding, best: BatchRow, target: Target) -> Refused | None:
    """Why the optimum cannot be moved to another budget or model size."""
    if found.task_info.optimizer_family != "adam":
        return Refused(OtherOptimizer(found.task_info.optimizer_family))
    sizes = [row.global_batch_size for row in surface.rows]
    if target.global_batch_size is None and best.global_batch_size in (sizes[0], sizes[-1]):
        return Refused(OptimumOnlyBounded(best.global_batch_size, sizes[0], sizes[-1]))
    return None


def _caveats(found: Findings, surface: SurfaceFinding) -> tuple[Caveat, ...]:
    """The best size at an end of the axis, else a tied one; and another optimizer than the rules'."""
    caveats = []
    sizes = [row.global_batch_size for row in surface.rows]
    best = surface.best.global_batch_size if surface.best else 0
    low, high = _bounds(surface)
    if best == sizes[0] or low == 0:
        caveats.append(Caveat.SMALLEST_BATCH_IS_BEST if best == sizes[0] else Caveat.SMALLEST_BATCH_IS_TIED)
    if best == sizes[-1] or math.isinf(high):
        caveats.append(Caveat.LARGEST_BATCH_IS_BEST if best == sizes[-1] else Caveat.LARGEST_BATCH_IS_TIED)
    if found.task_info.optimizer_family != "adam":
        caveats.append(Caveat.OPTIMIZER_IS_NOT_ADAM)
    return tuple(caveats)


def _constants(
    found: Findings, size: int, budget: int, rate: Scaled, best: BatchRow
) -> tuple[Scaled | Refused | None, Scaled | Refused | None]:
    """(beta2, weight decay) where the study's rule lets them follow the batch."""
    config = found.experiment.optimizer
    reference = found.experiment.reference_batch_size
    beta2: Scaled | Refused | None = None
    decay: Scaled | Refused | None = None
    if config.across_batch is not AcrossBatch.FIXED and config.name in ("adam", "adamw"):
        beta2 = beta2_by_half_life(config.beta2, size / reference)
    if config.across_batch is AcrossBatch.HALF_LIFE_AND_DECAY and best.best is not None and found.token_budget:
        decay = weight_decay_by_timescale(
            weight_decay_of(config, best.global_batch_size / reference, config.rate_ratio(best.best.learning_rate)),
            best.global_batch_size,
            size,
            learning_rate_ratio=rate.value / best.best.learning_rate,
            budget_ratio=budget / found.token_budget,
        )
    return beta2, decay


def _confirmation(found: Findings, target: Target, rate: Scaled, size: int, best_batch: Scaled) -> Confirmation:
    own = measured_optimum(found)
    assert own is not None
    if target.parameters is not None and target.parameters != found.task_info.parameter_count:
        return SmallStudy(own.token_budget, best_batch.value, rate.value, target.parameters)
    if target.token_budget is not None and target.token_budget != found.token_budget:
        asked = confirm_budget([replace(own, parameters=None), *found.earlier_optima], target.token_budget)
        assert not isinstance(asked, Refused), "the target itself is within reach, and this budget is nearer"
        return asked
    return confirm_batch(rate, size, own.token_budget)


def earlier_optima(trials: Sequence[PriorTrial], token_budget: float) -> tuple[Optimum, ...]:
    """The best cell of the study that a search started from, at its own budget."""
    finite = [
        (trial.val_loss, trial.global_batch_size, trial.learning_rate)
        for trial in trials
        if trial.val_loss is not None and trial.judged
    ]
    if not finite:
        return ()
    _, size, rate = min(finite, key=lambda cell: cell[0])
    return (Optimum(float(token_budget), float(size), rate),)
