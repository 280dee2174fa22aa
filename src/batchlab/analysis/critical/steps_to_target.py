"""The critical batch size from the steps and samples that different batch sizes need to reach one loss.

    S = S_min (1 + B_crit / B)        E = S·B = E_min (1 + B / B_crit)        E_min = S_min · B_crit

Both definitions in use are reported, each by its name (`Definition`). On this curve the one with 2× samples is B_crit
itself, and the one with 20 % overhead from a base batch size b₀ is 0.2 B_crit + 1.2 b₀. Sources: McCandlish et al. 2018
(arXiv:1812.06162), Zhang et al. 2024 (arXiv:2410.21676).

Limits. On the curve a smaller batch size never needs more samples. Real tables contradict that below the batch size
that needs the fewest, so only that one and larger ones are fitted. Steps must come from runs whose schedule leaves open
when the target is reached: constant learning rate with averaged weights, decayed branches, or several budgets
(`iso_loss`). A single decayed sweep has one budget and says nothing about steps to a target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from batchlab.analysis.critical.hyperbola import RESOLUTION, Hyperbola, Limits, Profile, Vector
from batchlab.analysis.critical.planned_runs import Gap, plan_runs
from batchlab.analysis.critical.steps_finding import (
    CriticalBatch,
    Definition,
    LowestAtEnd,
    Reason,
    Status,
    StepsFinding,
    StepsReason,
    TooFewAboveOptimum,
    TooFewReached,
)
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

Origin = Literal["constant_lr", "branches", "budgets", "decayed_sweep"]

OVERHEAD = 0.2
MIN_SIZES = 4
"""Two parameters are fitted; with fewer sizes the residuals cannot contradict the curve."""
LEAST_R_SQUARED = 0.5
"""Where the curve explains less of ln S than this, it is not even used for a limit."""
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
    """Both critical batch sizes from steps to one target, with 95 % profile intervals.

    `noise_sd`: relative standard deviation of the steps between seeds, where known; otherwise it is estimated from the
    residuals. `base_batch`: b₀ of the definition with 20 % overhead, by default the smallest size fitted.

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


def at_or_above_optimum(log_batch: Vector, log_samples: Vector, noise_sd: float | None = None) -> npt.NDArray[np.bool_]:
    """Which points (sorted by batch size) lie at or above the token-optimal batch size, as far as noise allows.

    The batch size that needed the fewest samples and all larger ones; then, downwards, each smaller one whose samples
    exceed the prediction of the curve through the points taken by no more than noise (one-sided 99 %, noise as given or
    from their residuals). Stopping at the lowest point would, where the curve is flat, discard good points because
    another was lucky. Before there are enough points for a curve, one within 5 % of the fewest samples is taken.
    """
    best = first = int(np.argmin(log_samples))
    n = len(log_batch)
    while first > 0:
        if n - first < MIN_SIZES:
            excess, margin = float(log_samples[first - 1] - log_samples[best]), SAME_SAMPLES
            if noise_sd is not None:
                margin = max(margin, ONE_SIDED_99 * math.sqrt(2) * noise_sd)
        else:
            taken = Profile(np.exp(log_batch[first:]), (log_samples - log_batch)[first:], noise_sd)
            predicted, error = taken.predict(float(log_batch[first - 1]))
            free = n - first - 2
            factor = t_quantile(0.99, free) if noise_sd is None else ONE_SIDED_99
            excess = float((log_samples - log_batch)[first - 1]) - predicted
            margin = factor * error
        if excess > margin:
            break
        first -= 1
    return np.asarray(np.arange(n) >= first)


def overhead_by_interpolation(log_batch: Vector, log_samples: Vector, base_batch: float | None = None) -> float | None:
    """Largest batch size whose samples to the target are within 20 % of those at the base batch size.

    The default base is the size with the fewest samples. Straight lines in ln E over ln B between sizes. None where the
    largest size is still within 20 %, or the base is not among the sizes.
    """
    if base_batch is None:
        start = int(np.argmin(log_samples))
    else:
        at_base = np.flatnonzero(np.isclose(log_batch, math.log(base_batch)))
        if not len(at_base):
            return None
        start = int(at_base[0])
    limit = float(log_samples[start]) + math.log1p(OVERHEAD)
    above = np.flatnonzero(log_samples > limit)
    above = above[above > start]
    if not len(above):
        return None
    i = int(above[0])
    share = (limit - log_samples[i - 1]) / (log_samples[i] - log_samples[i - 1])
    return math.exp(float(log_batch[i - 1] + share * (log_batch[i] - log_batch[i - 1])))


def _one_budget(sizes: tuple[float, ...]) -> StepsFinding:
    return StepsFinding("cannot_tell", StepsReason.ONE_BUDGET, used=sizes, settle=plan_runs(sizes, "schedule"))


def _judge(
    batch: Vector, log_steps: Vector, sizes: tuple[float, ...], noise_sd: float | None, base_batch: float | None
) -> StepsFinding:
    log_batch = np.log(batch)
    log_samples = log_batch + log_steps
    optimal = float(batch[int(np.argmin(log_samples))])
    chosen = at_or_above_optimum(log_batch, log_samples, noise_sd)
    used = tuple(dict.fromkeys(batch[chosen].tolist()))
    left_out = tuple(b for b in sizes if b not in used)
    read_off = overhead_by_interpolation(log_batch[chosen], log_samples[chosen], base_batch)

    def refuse(status: Status, reason: Reason, gap: Gap) -> StepsFinding:
        plan = plan_runs(sizes, gap)
        return StepsFinding(status, reason, token_optimal=optimal, used=used, left_out=left_out, settle=plan)

    if len(used) < MIN_SIZES:
        if optimal == batch[-1]:
            return refuse("none_inside", StepsReason.FEWEST_AT_LARGEST, "larger")
        return refuse("cannot_tell", TooFewAboveOptimum(len(used), optimal), "larger")
    if _steps_grow(log_batch[chosen], log_steps[chosen], noise_sd):
        return refuse("cannot_tell", StepsReason.STEPS_GROW, "repeat")
    profile = Profile(batch[chosen], log_steps[chosen], noise_sd)
    misfit = profile.misfit()
    if misfit is not None:
        return replace(refuse("cannot_tell", misfit, "repeat"), read_off=read_off)
    limits, fit = profile.b_crit, profile.fit
    if limits.high is None and limits.low is not None:  # beyond the sizes a limit rests on the model alone
        limits = Limits(min(limits.low, used[-1]), None)
    if limits.low is None and limits.high is not None:
        limits = Limits(None, max(limits.high, used[0]))
    if limits.low is None and limits.high is None:
        return refuse("cannot_tell", StepsReason.NOISE, "repeat")
    if fit.r_squared < LEAST_R_SQUARED:
        return refuse("cannot_tell", StepsReason.STEPS_DO_NOT_DEPEND, "smaller")
    base = base_batch if base_batch is not None else used[0]
    twice, overhead = _definitions(fit, limits, base)
    s_min, e_min = profile.level_limits(of_samples=False), profile.level_limits(of_samples=True)
    status: Status = "found"
    reason: Reason | None = None
    gap: Gap | None = None
    if limits.high is None and profile.best_is_ideal:
        status, gap, reason = "infinite", "larger", StepsReason.SAMPLES_DO_NOT_GROW
    elif limits.high is None:
        status, gap, reason = "at_least", "larger", StepsReason.NO_LARGE_SIZE
    elif limits.low is None:
        status, gap, reason = "at_most", "smaller", StepsReason.NO_SMALL_SIZE
    found = status == "found"
    return StepsFinding(
        status,
        reason,
        twice=twice,
        overhead=overhead,
        read_off=read_off,
        s_min=Interval(fit.s_min, s_min.low, s_min.high, fit.n) if found or status == "at_most" else None,
        e_min=Interval(fit.s_min * fit.b_crit, e_min.low, e_min.high, fit.n) if found or status == "at_least" else None,
        fit=fit if found else None,
        token_optimal=optimal,
        used=used,
        left_out=left_out,
        settle=plan_runs(sizes, gap) if gap else (),
    )


def _definitions(fit: Hyperbola, limits: Limits, base: float) -> tuple[CriticalBatch, CriticalBatch]:
    def at_overhead(b_crit: float | None) -> float | None:
        return None if b_crit is None else OVERHEAD * b_crit + (1 + OVERHEAD) * base

    twice, overhead = Definition.TWICE_SAMPLES, Definition.OVERHEAD_20
    low, high = limits.low, limits.high
    low_20, high_20 = at_overhead(low), at_overhead(high)
    if low is None or high is None:
        return CriticalBatch(twice, None, low, high), CriticalBatch(overhead, None, low_20, high_20, base)
    at_fit = OVERHEAD * fit.b_crit + (1 + OVERHEAD) * base
    return (
        CriticalBatch(twice, Interval(fit.b_crit, low, high, fit.n)),
        CriticalBatch(overhead, Interval(at_fit, low_20, high_20, fit.n), base_batch=base),
    )


def _steps_grow(log_batch: Vector, log_steps: Vector, noise_sd: float | None) -> bool:
    """Whether ln S rises with ln B, one-sided at 97.5 %."""
    x = log_batch - log_batch.mean()
    slope = float(x @ log_steps / (x @ x))
    rest = log_steps - log_steps.mean() - slope * x
    free = len(x) - 2
    sd = math.sqrt(float(rest @ rest) / free) if noise_sd is None else noise_sd
    factor = t_quantile(0.5 + CONFIDENCE / 2, free) if noise_sd is None else 1.96
    return slope > factor * max(sd, RESOLUTION) / math.sqrt(float(x @ x))
