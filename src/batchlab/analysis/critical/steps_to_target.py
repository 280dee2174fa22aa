"""The critical batch size from the steps and samples that different batch sizes need to reach one loss.

    S = S_min (1 + B_crit / B)        E = S·B = E_min (1 + B / B_crit)        E_min = S_min · B_crit

Two definitions are in use. On one curve they differ three- to fivefold, so both are reported, each by its name:

- `2x`: B_crit itself, where steps and samples are both twice their least (McCandlish et al. 2018, arXiv:1812.06162);
- `20pct`: the batch at which steps exceed ideal scaling from a base batch b₀ by 20 % (Zhang et al. 2024,
  arXiv:2410.21676), which on the curve above is 0.2 B_crit + 1.2 b₀.

The curve makes a smaller batch never worse in samples. Real tables contradict that below the batch that needs the
fewest, so only that batch and larger ones are fitted. Steps must come from runs whose schedule leaves the time of the
target open: constant learning rate with averaged weights, decayed branches, or several budgets (`iso_loss`). A single
decayed sweep has one budget and says nothing about steps to a target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from batchlab.analysis.critical.hyperbola import RESOLUTION, Hyperbola, Limits, Profile
from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

Vector = npt.NDArray[np.float64]
Origin = Literal["constant_lr", "branches", "budgets", "decayed_sweep"]
Status = Literal["found", "at_least", "at_most", "infinite", "none_inside", "cannot_tell"]
Gap = Literal["schedule", "smaller", "larger", "between", "longer", "repeat"]

OVERHEAD = 0.2
MIN_SIZES = 4
"""Two numbers are fitted; with fewer sizes the residuals cannot contradict the curve."""
LEAST_R_SQUARED = 0.5
"""Where the curve explains less of ln S than this, not even a limit from it is told."""
SAME_SAMPLES = 0.05
REPEATS = "two more seeds, and the learning rate re-tuned"
"""Runs that `critical --run` does not train: they ask for a sweep of more seeds."""
ONE_SIDED_99 = 2.326


@dataclass(frozen=True, slots=True)
class StepsPoint:
    """Steps that one batch size needed to reach the target, at its own best learning rate; None: not reached."""

    batch: float
    steps: float | None


@dataclass(frozen=True, slots=True)
class CriticalBatch:
    """A critical batch size by one definition; `value` is None where only a one-sided limit (97.5 %) is known."""

    definition: Literal["2x", "20pct"]
    value: Interval | None
    at_least: float | None = None
    at_most: float | None = None
    base_batch: float | None = None  # of 20pct


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that would settle what is not known; `budget` is relative to the longest there is."""

    batch: float
    schedule: Literal["constant_lr_averaged", "decayed"]
    budget: float
    why: str


@dataclass(frozen=True, slots=True)
class StepsFinding:
    """What steps to one target say.

    `found`: both limits. `at_least`, `at_most`: the sizes measured do not bracket the other side; the limit is never
    beyond them. `infinite`: samples to the target did not grow with the batch at all. `none_inside`: the batch with
    the fewest samples (the lowest loss) is the last one on a side, so the optimum is not inside. `cannot_tell`: see
    `reason`. `settle` would answer.
    """

    status: Status
    reason: str = ""
    twice: CriticalBatch | None = None
    overhead: CriticalBatch | None = None
    read_off: float | None = None  # 20pct by interpolation between sizes: needs no curve, has no interval
    s_min: Interval | None = None
    e_min: Interval | None = None
    fit: Hyperbola | None = None  # absent wherever its numbers must not be shown
    token_optimal: float | None = None
    used: tuple[float, ...] = ()
    left_out: tuple[float, ...] = ()
    settle: tuple[PlannedRun, ...] = ()


def critical_batch(
    points: Sequence[StepsPoint],
    *,
    origin: Origin,
    noise_sd: float | None = None,
    base_batch: float | None = None,
) -> StepsFinding:
    """Both critical batch sizes from steps to one target, with 95 % profile intervals.

    `noise_sd`: relative standard deviation of the steps between seeds, where known; the residuals stand for it
    otherwise. `base_batch`: b₀ of the 20 % definition, by default the smallest size fitted.
    Errors: InputError for sizes or steps that are not positive numbers.
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
        reason = (
            f"{distinct} of {len(sizes)} batch sizes reached the target, and the curve needs {MIN_SIZES}."
            if distinct
            else "No run reached the target: choose a higher loss, or train longer."
        )
        settle = plan_runs(sizes, "longer" if len(sizes) >= MIN_SIZES else "between")
        return StepsFinding("cannot_tell", reason, left_out=sizes, settle=settle)
    return _judge(table[:, 0], table[:, 1], sizes, noise_sd, base_batch)


def judge_sweep(batches: Sequence[float], losses: Sequence[float], *, loss_sd: float | None = None) -> StepsFinding:
    """What a single decayed sweep, one tuned loss per batch at equal tokens, does say: where its best batch lies.

    Never a critical batch size. `none_inside` when the lowest loss, or one that noise (`loss_sd`, nats, known) cannot
    separate from it at 95 %, is at an end of the sweep; then `settle` goes beyond that end.
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
            reason = f"The lowest loss is not inside the sizes measured: {end:g}, an end of them, is as good as any."
            beyond_runs = plan_runs(sizes, gap, schedule="decayed")
            return StepsFinding(
                "none_inside",
                reason,
                token_optimal=best,
                used=sizes,
                settle=(*beyond_runs, *plan_runs(sizes, "schedule")),
            )
    one = _one_budget(sizes)
    return StepsFinding("cannot_tell", one.reason, token_optimal=best, used=sizes, settle=one.settle)


def plan_runs(
    sizes: Sequence[float], gap: Gap, *, schedule: Literal["constant_lr_averaged", "decayed"] = "constant_lr_averaged"
) -> tuple[PlannedRun, ...]:
    """Which runs would close a gap in what these sizes show. Each still needs its own best learning rate.

    `schedule`: no run shows steps to a loss; `smaller`, `larger`: the knee lies beyond an end; `between`: too few
    sizes; `longer`: too few reached the target; `repeat`: the noise, or the learning rates, are in doubt.
    """
    ordered = sorted(set(sizes)) or [1.0]
    low, high = ordered[0], ordered[-1]
    if gap == "larger":
        return tuple(PlannedRun(high * k, schedule, 1.0, "beyond the largest size") for k in (4, 16))
    if gap == "smaller":
        smaller = dict.fromkeys(max(1.0, low / k) for k in (4, 16))
        return tuple(PlannedRun(b, schedule, 1.0, "below the smallest size") for b in smaller if b < low)
    if gap == "longer":
        return tuple(PlannedRun(b, schedule, 2.0, "to reach the target") for b in ordered)
    if gap == "repeat":
        chosen = dict.fromkeys((low, ordered[len(ordered) // 2], high))
        return tuple(PlannedRun(b, schedule, 1.0, REPEATS) for b in chosen)
    spread = _doublings(ordered, at_least=6)
    if gap == "between":
        return tuple(PlannedRun(b, schedule, 1.0, "a size not measured yet") for b in spread if b not in ordered)
    why = "at a quarter and at half of the budget: three budgets show how many steps a loss takes"
    return tuple(PlannedRun(b, "decayed", 0.25, why) for b in spread)


def at_or_above_optimum(log_batch: Vector, log_samples: Vector, noise_sd: float | None = None) -> npt.NDArray[np.bool_]:
    """Which points (sorted by batch) lie at or above the token-optimal batch, as far as noise lets one say.

    The batch that needed the fewest samples and all larger ones; then, downwards, each smaller one whose samples do
    not exceed what the curve through those taken predicts for it by more than noise explains (one-sided 99 %, noise as
    given or from their residuals). Stopping at the bare minimum would, where the curve is flat, throw away good points
    for another's luck. Before there are enough for a curve, a point within 5 % of the fewest is taken.
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
    """Largest batch whose samples to the target stay within 20 % of those at the base batch (default: of the fewest).

    Straight lines in ln E over ln B between sizes. None where the largest size is still within, or the base is not one.
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
    return StepsFinding(
        "cannot_tell",
        "These runs share one budget and decay the learning rate to its end, so none of them shows how many "
        "steps a loss takes.",
        used=sizes,
        settle=plan_runs(sizes, "schedule"),
    )


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

    def refuse(status: Status, reason: str, gap: Gap) -> StepsFinding:
        plan = plan_runs(sizes, gap)
        return StepsFinding(status, reason, token_optimal=optimal, used=used, left_out=left_out, settle=plan)

    if len(used) < MIN_SIZES:
        if optimal == batch[-1]:
            return refuse("none_inside", f"The largest size, {optimal:g}, needed the fewest samples.", "larger")
        some = f"Only {len(used)} sizes are at or above {optimal:g}, which needed the fewest samples"
        return refuse("cannot_tell", f"{some}, and the curve needs {MIN_SIZES}.", "larger")
    if _steps_grow(log_batch[chosen], log_steps[chosen], noise_sd):
        why = "Steps to the target grow with the batch, which no critical batch size explains"
        return refuse("cannot_tell", f"{why}: larger sizes are probably not at their best learning rate.", "repeat")
    profile = Profile(batch[chosen], log_steps[chosen], noise_sd)
    misfit = profile.misfit()
    if misfit is not None:
        return replace(refuse("cannot_tell", f"The model does not hold: {misfit}", "repeat"), read_off=read_off)
    limits, fit = profile.b_crit, profile.fit
    if limits.high is None and limits.low is not None:  # beyond the sizes only the model speaks
        limits = Limits(min(limits.low, used[-1]), None)
    if limits.low is None and limits.high is not None:
        limits = Limits(None, max(limits.high, used[0]))
    if limits.low is None and limits.high is None:
        return refuse("cannot_tell", "Noise hides how steps depend on the batch.", "repeat")
    if fit.r_squared < LEAST_R_SQUARED:
        why = "Steps hardly depend on the batch: all sizes are beyond the critical one, or noise hides it"
        return refuse("cannot_tell", f"{why}.", "smaller")
    base = base_batch if base_batch is not None else used[0]
    twice, overhead = _definitions(fit, limits, base)
    s_min, e_min = profile.level_limits(of_samples=False), profile.level_limits(of_samples=True)
    status: Status = "found"
    reason = ""
    gap: Gap | None = None
    if limits.high is None:
        status, gap = ("infinite" if profile.best_is_ideal else "at_least"), "larger"
        reason = (
            "Samples to the target do not grow with the batch over these sizes."
            if status == "infinite"
            else "No size is large enough to show where steps stop falling."
        )
    elif limits.low is None:
        status, gap, reason = "at_most", "smaller", "No size is small enough to show where samples stop falling."
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

    low, high = limits.low, limits.high
    low_20, high_20 = at_overhead(low), at_overhead(high)
    if low is not None and high is not None:
        at_fit = OVERHEAD * fit.b_crit + (1 + OVERHEAD) * base
        twice, overhead = Interval(fit.b_crit, low, high, fit.n), Interval(at_fit, low_20, high_20, fit.n)
        return CriticalBatch("2x", twice), CriticalBatch("20pct", overhead, base_batch=base)
    return CriticalBatch("2x", None, low, high), CriticalBatch("20pct", None, low_20, high_20, base)


def _steps_grow(log_batch: Vector, log_steps: Vector, noise_sd: float | None) -> bool:
    """Whether ln S rises with ln B, one-sided at 97.5 %."""
    x = log_batch - log_batch.mean()
    slope = float(x @ log_steps / (x @ x))
    rest = log_steps - log_steps.mean() - slope * x
    free = len(x) - 2
    sd = math.sqrt(float(rest @ rest) / free) if noise_sd is None else noise_sd
    factor = t_quantile(0.5 + CONFIDENCE / 2, free) if noise_sd is None else 1.96
    return slope > factor * max(sd, RESOLUTION) / math.sqrt(float(x @ x))


def _doublings(ordered: Sequence[float], at_least: int) -> tuple[float, ...]:
    """The sizes given, then doublings beyond the largest, then halvings of the widest gaps, until there are enough."""
    sizes = list(ordered)
    while len(sizes) < at_least:
        gaps = [b / a for a, b in itertools.pairwise(sizes)]
        widest = max(gaps, default=0.0)
        if widest >= 4:
            i = gaps.index(widest)
            sizes.insert(i + 1, float(round(math.sqrt(sizes[i] * sizes[i + 1]))))
        else:
            sizes.append(sizes[-1] * 2)
    return tuple(sizes)
