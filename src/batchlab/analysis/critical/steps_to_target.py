"""The critical batch size from the steps and samples that different batch sizes need to reach one loss.

The definitions in use (`Definition`) are three numbers, each with its own interval: twice the fewest steps, twice the
fewest samples, and 20 % more samples than at a base batch size. They are read from a posterior over curves whose knee
may have any of many shapes (`tradeoff_fit`). On the textbook curve S = S_min (1 + B_crit/B) they would all follow from
one B_crit; on computed curves of quadratics with a spectrum they do not.

A number is given only where its interval lies within the sizes measured and spans at most a factor of 4. Otherwise
the answer is a limit, never beyond those sizes, or nothing.

Limits. On the curves a smaller batch size never needs more samples. Real tables contradict that below the batch size
that needs the fewest, so only that one and larger ones are fitted, and smaller ones within noise. Steps must come from
runs whose schedule leaves open when the target is reached: constant learning rate with averaged weights, decayed
branches, or several budgets (`iso_loss`). A single decayed sweep has one budget and says nothing about steps to a
target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from batchlab.analysis.critical.planned_runs import Gap, plan_runs
from batchlab.analysis.critical.steps_finding import (
    CriticalBatch,
    Definition,
    LowestAtEnd,
    Misfit,
    Reason,
    Status,
    StepsFinding,
    StepsReason,
    TooFewAboveOptimum,
    TooFewReached,
)
from batchlab.analysis.critical.tradeoff import Vector
from batchlab.analysis.critical.tradeoff_fit import MODEL_ERROR, UNKNOWN_NOISE, Credible, TradeoffFit
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

Origin = Literal["constant_lr", "branches", "budgets", "decayed_sweep"]

OVERHEAD = 0.2
MIN_SIZES = 4
"""The knee and its height are two unknowns, and its shape two more, of which something is known."""
WIDEST = 4.0
"""An interval wider than this factor is told as two limits."""
LEAST_R_SQUARED = 0.5
"""Where the curve explains less of ln S than this, it is not even used for a limit."""
RESOLUTION = 0.002
"""Relative. However smooth they look, steps are not known better than this: losses are evaluated every so often."""
MISFIT = 0.15
"""Residuals beyond the known noise widen the intervals up to this size. Beyond it no curve with one knee is used."""
MISFIT_LEVEL = 0.001
SAME_SAMPLES = 0.05
ONE_SIDED_99 = 2.326


@dataclass(frozen=True, slots=True)
class StepsPoint:
    """Steps that one batch size needed to reach the target, at its own best learning rate; None: not reached."""

    batch: float
    steps: float | None


def critical_batch(
    points: Sequence[StepsPoint],
    *,
    origin: Origin,
    noise_sd: float | None = None,
    base_batch: float | None = None,
) -> StepsFinding:
    """Critical batch sizes by every definition, from steps to one target, with 95 % intervals.

    `noise_sd`: relative standard deviation of the steps between seeds, where known; otherwise 2 % is assumed, and the
    residuals correct it. `base_batch`: that of the definition with 20 % overhead, by default the smallest size fitted;
    it must be among those.

    Raises InputError for sizes or steps that are not positive numbers.
    """
    if any(not 0 < value < math.inf for p in points for value in (p.batch, p.steps) if value is not None):
        raise InputError("Batch sizes and steps to a target are positive numbers; give None where it was not reached.")
    sizes = tuple(sorted({float(p.batch) for p in points}))
    if origin == "decayed_sweep":
        return _one_budget(sizes)
    reached = sorted((p.batch, math.log(p.steps)) for p in points if p.steps is not None)
    table = np.array(reached, dtype=np.float64).reshape(-1, 2)
    distinct = len(set(table[:, 0].tolist()))
    if distinct < MIN_SIZES:
        reason = TooFewReached(distinct, len(sizes)) if distinct else StepsReason.NONE_REACHED
        settle = plan_runs(sizes, "longer" if len(sizes) >= MIN_SIZES else "between")
        return StepsFinding("cannot_tell", reason, left_out=sizes, settle=settle)
    return _judge(table[:, 0], table[:, 1], sizes, noise_sd, base_batch)


def judge_sweep(batches: Sequence[float], losses: Sequence[float], *, loss_sd: float | None = None) -> StepsFinding:
    """What a single decayed sweep, one tuned loss per batch size at equal tokens, says: where its best batch size lies.

    Never a critical batch size. `none_inside` where the lowest loss, or one within noise of it (95 %; `loss_sd` in
    nats, known), is at an end of the sweep; `settle` then goes beyond that end.
    """
    order = np.argsort(np.asarray(batches, dtype=np.float64))
    b, y = np.asarray(batches, dtype=np.float64)[order], np.asarray(losses, dtype=np.float64)[order]
    best = float(b[int(np.argmin(y))])
    margin = 0.0 if loss_sd is None else 1.645 * math.sqrt(2) * loss_sd
    tied = b[y <= y.min() + margin]
    sizes = tuple(b.tolist())
    ends: tuple[tuple[float, Gap], ...] = ((sizes[0], "smaller"), (sizes[-1], "larger"))
    for end, gap in ends:
        if end in tied:
            beyond_runs = plan_runs(sizes, gap, schedule="decayed")
            return StepsFinding(
                "none_inside",
                LowestAtEnd(end),
                token_optimal=best,
                used=sizes,
                settle=(*beyond_runs, *plan_runs(sizes, "schedule")),
            )
    return replace(_one_budget(sizes), token_optimal=best)


def at_or_above_optimum(log_samples: Vector, noise_sd: float | None = None) -> npt.NDArray[np.bool_]:
    """Which points (sorted by batch size) lie at or above the token-optimal batch size, as far as noise allows.

    The batch size that needed the fewest samples, all larger ones, and smaller ones down to the first whose samples
    exceed the fewest by more than noise (one-sided 99 %) and 5 %. Stopping at the lowest point would, where the
    curve is flat, discard good points because another was lucky.
    """
    best = first = int(np.argmin(log_samples))
    noise = UNKNOWN_NOISE if noise_sd is None else noise_sd
    margin = max(SAME_SAMPLES, ONE_SIDED_99 * math.sqrt(2) * noise)
    while first > 0 and float(log_samples[first - 1] - log_samples[best]) <= margin:
        first -= 1
    return np.asarray(np.arange(len(log_samples)) >= first)


def _one_budget(sizes: tuple[float, ...]) -> StepsFinding:
    return StepsFinding("cannot_tell", StepsReason.ONE_BUDGET, used=sizes, settle=plan_runs(sizes, "schedule"))


def _judge(
    batch: Vector, log_steps: Vector, sizes: tuple[float, ...], noise_sd: float | None, base_batch: float | None
) -> StepsFinding:
    log_batch = np.log(batch)
    log_samples = log_batch + log_steps
    optimal = float(batch[int(np.argmin(log_samples))])
    chosen = at_or_above_optimum(log_samples, noise_sd)
    used = tuple(dict.fromkeys(batch[chosen].tolist()))
    left_out = tuple(b for b in sizes if b not in used)

    def refuse(status: Status, reason: Reason, gap: Gap) -> StepsFinding:
        plan = plan_runs(sizes, gap)
        return StepsFinding(status, reason, token_optimal=optimal, used=used, left_out=left_out, settle=plan)

    if len(used) < MIN_SIZES:
        if optimal == batch[-1]:
            return refuse("none_inside", StepsReason.FEWEST_AT_LARGEST, "larger")
        return refuse("cannot_tell", TooFewAboveOptimum(len(used), optimal), "larger")
    if _slope(log_batch[chosen], log_steps[chosen], noise_sd).grows:
        return refuse("cannot_tell", StepsReason.STEPS_GROW, "repeat")
    fit = TradeoffFit(log_batch[chosen], log_steps[chosen], noise_sd)
    if noise_sd is not None and _beyond_noise(fit, noise_sd):
        if fit.curve.largest_residual > MISFIT:
            return refuse("cannot_tell", Misfit(fit.curve.largest_residual, noise_sd), "repeat")
        fit = TradeoffFit(log_batch[chosen], log_steps[chosen])
    if fit.curve.r_squared < LEAST_R_SQUARED:
        return refuse("cannot_tell", StepsReason.STEPS_DO_NOT_DEPEND, "smaller")
    base = base_batch if base_batch is not None else used[0]
    twice_steps = _within_sizes(Definition.TWICE_STEPS, fit.twice_steps, used)
    twice_samples = _within_sizes(Definition.TWICE_SAMPLES, fit.twice_samples, used)
    overhead = CriticalBatch(Definition.OVERHEAD_20, None, base_batch=base)
    if used[0] <= base < used[-1]:
        overhead = _within_sizes(Definition.OVERHEAD_20, fit.more_samples(base, 1 + OVERHEAD), used, base)
    ideal = _slope(log_batch[chosen], log_samples[chosen], noise_sd).value <= RESOLUTION
    status, why, gap = _status([twice_steps, twice_samples, overhead], ideal)
    return StepsFinding(
        status,
        why,
        twice_steps,
        twice_samples,
        overhead,
        curve=fit.curve if status == "found" else None,
        token_optimal=optimal,
        used=used,
        left_out=left_out,
        settle=plan_runs(sizes, gap) if gap else (),
    )


def _within_sizes(
    definition: Definition, found: Credible, sizes: Sequence[float], base: float | None = None
) -> CriticalBatch:
    """A number where the sizes measured bracket its interval; else what limits they give."""
    smallest, largest = sizes[0], sizes[-1]
    if smallest <= found.low and found.high <= min(largest, WIDEST * found.low):
        return CriticalBatch(definition, Interval(found.median, found.low, found.high, len(sizes)), base_batch=base)
    at_least = min(found.low, largest) if found.low > smallest else None
    at_most = max(found.high, smallest) if found.high < largest else None
    return CriticalBatch(definition, None, at_least, at_most, base)


def _status(estimates: Sequence[CriticalBatch], ideal: bool) -> tuple[Status, StepsReason | None, Gap | None]:
    """What the estimates are as a whole. `ideal`: samples do not grow with the batch size."""
    if any(one.value is not None for one in estimates):
        return "found", None, None
    of_samples = [one for one in estimates if one.definition is not Definition.TWICE_STEPS]
    if any(one.at_least is not None and one.at_most is None for one in of_samples):
        if ideal:
            return "infinite", StepsReason.SAMPLES_DO_NOT_GROW, "larger"
        return "at_least", StepsReason.NO_LARGE_SIZE, "larger"
    if any(one.at_most is not None and one.at_least is None for one in estimates):
        return "at_most", StepsReason.NO_SMALL_SIZE, "smaller"
    if any(one.known for one in estimates):
        return "between", StepsReason.TOO_WIDE, "repeat"
    return "cannot_tell", StepsReason.NOISE, "repeat"


def _beyond_noise(fit: TradeoffFit, noise_sd: float) -> bool:
    """Whether noise explains the residuals with a probability of under 0.1 %. Then something else is in the steps too,
    such as the spacing of learning rates, and the residuals themselves are the noise."""
    limit = _chi_squared_quantile(1 - MISFIT_LEVEL, len(fit.log_steps) - 2)
    return fit.least_squares > limit * (noise_sd**2 + MODEL_ERROR**2)


def _chi_squared_quantile(probability: float, df: int) -> float:
    """Wilson and Hilferty 1931; within 1 % where it is used."""
    z = NormalDist().inv_cdf(probability)
    return float(df * (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3)


@dataclass(frozen=True, slots=True)
class _Slope:
    value: float
    grows: bool  # one-sided at 97.5 %


def _slope(log_batch: Vector, y: Vector, noise_sd: float | None) -> _Slope:
    """Of the straight line through y over ln B."""
    x = log_batch - log_batch.mean()
    slope = float(x @ y / (x @ x))
    rest = y - y.mean() - slope * x
    free = len(x) - 2
    sd = math.sqrt(float(rest @ rest) / free) if noise_sd is None else noise_sd
    factor = t_quantile(0.5 + CONFIDENCE / 2, free) if noise_sd is None else 1.96
    return _Slope(slope, slope > factor * max(sd, RESOLUTION) / math.sqrt(float(x @ x)))
