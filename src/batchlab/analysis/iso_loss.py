"""Tokens to one loss from runs that each had their own budget, and the doubt that a noisy loss brings to a critical batch.

Every run's schedule ended at its own `tokens`. For one batch size and budget the loss counts at its best learning rate;
between budgets it is a straight line in ln tokens; the target is where that line crosses it, and is never extrapolated.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchlab.analysis.findings import Interval
from batchlab.analysis.steps_to_target import OVERHEAD, CriticalBatch, StepsFinding, StepsPoint, critical_batch
from batchlab.errors import InputError

MIN_BUDGETS = 3
DRAWS = 200


@dataclass(frozen=True, slots=True)
class BudgetRun:
    """One finished run. `batch` and `tokens` are in one unit, tokens or samples."""

    batch: float
    learning_rate: float
    tokens: float
    loss: float


def tuned_loss(losses: Mapping[float, float]) -> float:
    """Lowest loss over learning rates: the vertex of the parabola in ln LR through the best cell and its neighbours.

    The best cell itself where it is the first or the last, so an optimum outside the grid is not made up. A vertex is at
    most a little below the best cell; the bare minimum of noisy cells would be too low by more.
    """
    rates = sorted(losses)
    best = min(range(len(rates)), key=lambda i: losses[rates[i]])
    if best in (0, len(rates) - 1):
        return losses[rates[best]]
    near = rates[best - 1 : best + 2]
    x = [math.log(rate / rates[best]) for rate in near]
    left, here, right = (losses[rate] for rate in near)
    low_slope, high_slope = (here - left) / (0 - x[0]), (right - here) / x[2]
    curvature = (high_slope - low_slope) / (x[2] - x[0])
    if curvature <= 0:
        return here
    slope = low_slope + curvature * -x[0]
    return here - slope**2 / (4 * curvature)


def tokens_to_loss(curve: Sequence[tuple[float, float]], target: float) -> float | None:
    """Tokens at which (tokens, loss) pairs first cross `target` downwards, linear in ln tokens; None where they do not."""
    points = sorted(curve)
    for (tokens, loss), (later, lower) in itertools.pairwise(points):
        if lower <= target < loss:
            return tokens * math.exp(math.log(later / tokens) * (loss - target) / (loss - lower))
    return None


def points_at_loss(runs: Sequence[BudgetRun], target: float) -> tuple[StepsPoint, ...]:
    """Steps to `target` of each batch size, at its best learning rate for each budget.

    Errors: InputError with fewer than 3 budgets.
    """
    budgets = {run.tokens for run in runs}
    if len(budgets) < MIN_BUDGETS:
        raise InputError(
            f"Steps to a loss from runs that decay need at least {MIN_BUDGETS} token budgets, and these have {len(budgets)}."
        )
    cells: dict[float, dict[float, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        cells[run.batch][run.tokens][run.learning_rate] = run.loss
    found = []
    for batch in sorted(cells):
        curve = [(tokens, tuned_loss(losses)) for tokens, losses in cells[batch].items()]
        tokens = tokens_to_loss(curve, target)
        found.append(StepsPoint(batch, None if tokens is None else tokens / batch))
    return tuple(found)


def critical_batch_from_budgets(
    runs: Sequence[BudgetRun],
    target: float,
    *,
    loss_sd: float,
    base_batch: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> StepsFinding:
    """Critical batch sizes at `target` with intervals that contain the whole way from losses to the fit.

    Each draw adds Gaussian noise of `loss_sd` (relative: the spread between seeds) to every run's loss and repeats tuning,
    crossing and fitting; the limits are the 2.5 and 97.5 % points around the undisturbed fit. Draws that the curve
    cannot describe count as unlimited on both sides, so limits vanish where too many do.
    """
    points = points_at_loss(runs, target)
    finding = critical_batch(points, origin="budgets", base_batch=base_batch)
    if finding.fit is None or finding.twice is None or finding.overhead is None:
        return finding
    generator = np.random.Generator(np.random.PCG64(seed))
    low, high = [], []
    for _ in range(draws):
        factors = 1 + loss_sd * generator.standard_normal(len(runs))
        drawn = [replace(run, loss=run.loss * float(f)) for run, f in zip(runs, factors, strict=True)]
        again = critical_batch(points_at_loss(drawn, target), origin="budgets", base_batch=base_batch)
        low.append(again.fit.b_crit if again.fit else 0.0)
        high.append(again.fit.b_crit if again.fit else math.inf)
    bottom = sorted(low)[math.floor(0.025 * draws)]
    top = sorted(high)[math.ceil(0.975 * draws) - 1]
    base = finding.overhead.base_batch or 0.0
    b_crit = finding.fit.b_crit

    def at_overhead(value: float) -> float:
        return OVERHEAD * value + (1 + OVERHEAD) * base

    if bottom == 0 or top == math.inf:
        reason = "Noise of the losses leaves the critical batch size without a limit on one side or both."
        return replace(finding, status="cannot_tell", reason=reason, twice=None, overhead=None, fit=None)
    twice = CriticalBatch("2x", Interval(b_crit, bottom, top, finding.fit.n))
    overhead = Interval(at_overhead(b_crit), at_overhead(bottom), at_overhead(top), finding.fit.n)
    return replace(finding, twice=twice, overhead=CriticalBatch("20pct", overhead, base_batch=base))
