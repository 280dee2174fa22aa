"""Tokens to one loss from runs with budgets of their own, and what noise in the losses does to a critical batch size.

The schedule of every run ended at its own `tokens`. At one batch size and budget the loss at the best learning rate
counts; between budgets the loss is a straight line in ln tokens. The target is reached where that line crosses it;
nothing is extrapolated.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchlab.analysis.critical.hyperbola import fit_hyperbola
from batchlab.analysis.critical.planned_runs import plan_runs
from batchlab.analysis.critical.steps_finding import CriticalBatch, Definition, StepsFinding, StepsReason
from batchlab.analysis.critical.steps_to_target import OVERHEAD, StepsPoint, critical_batch
from batchlab.analysis.values import Interval
from batchlab.core.errors import InputError

MIN_BUDGETS = 3
DRAWS = 200
RUNAWAY = 100.0
"""A critical batch size this many times the largest size measured is no limit."""


@dataclass(frozen=True, slots=True)
class BudgetRun:
    """One finished run. `batch` and `tokens` are in one unit, tokens or samples."""

    batch: float
    learning_rate: float
    tokens: float
    loss: float


def tuned_loss(losses: Mapping[float, float]) -> float:
    """Lowest loss over learning rates: the vertex of the parabola in ln LR through the best cell and its neighbours.

    The best cell itself where it is the first or the last, so that no optimum is extrapolated beyond the grid.
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
    """Tokens at which (tokens, loss) pairs first fall below `target`, linear in ln tokens; None where they do not."""
    points = sorted(curve)
    for (tokens, loss), (later, lower) in itertools.pairwise(points):
        if lower <= target < loss:
            return tokens * math.exp(math.log(later / tokens) * (loss - target) / (loss - lower))
    return None


def points_at_loss(runs: Sequence[BudgetRun], target: float) -> tuple[StepsPoint, ...]:
    """Steps to `target` of each batch size, at its best learning rate for each budget.

    Raises InputError for fewer than 3 budgets.
    """
    budgets = {run.tokens for run in runs}
    if len(budgets) < MIN_BUDGETS:
        raise InputError(
            f"Steps to a loss from runs that decay need {MIN_BUDGETS} token budgets or more; these have {len(budgets)}."
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
    """Critical batch sizes at `target` with 95 % intervals that include every step from the losses to the fit.

    Each draw adds Gaussian noise of `loss_sd` (relative: the spread between seeds) to the loss of every run and repeats
    tuning, crossing and the fit over the sizes chosen. Limits are the 2.5 and 97.5 % quantiles or those of the profile,
    whichever are wider: draws contain only that noise, the residuals of the profile also the error of the curve. An
    upper limit far beyond the sizes is dropped, and only the lower one is kept. S_min and E_min keep their profile
    intervals.
    """
    finding = critical_batch(points_at_loss(runs, target), origin="budgets", base_batch=base_batch)
    if finding.fit is None or finding.twice is None or finding.twice.value is None:
        return finding
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = []
    for _ in range(draws):
        factors = 1 + loss_sd * generator.standard_normal(len(runs))
        noisy = [replace(run, loss=run.loss * float(f)) for run, f in zip(runs, factors, strict=True)]
        reached = [(p.batch, p.steps) for p in points_at_loss(noisy, target) if p.batch in finding.used and p.steps]
        if len(reached) > 2:
            drawn.append(fit_hyperbola(*np.array(reached).T).b_crit)
    drawn.sort()
    low, high = drawn[math.floor(0.025 * len(drawn))], drawn[math.ceil(0.975 * len(drawn)) - 1]
    if high > RUNAWAY * finding.used[-1]:
        return replace(
            finding,
            status="at_least",
            reason=StepsReason.NOISE_OF_LOSSES,
            fit=None,
            twice=CriticalBatch(Definition.TWICE_SAMPLES, None, at_least=min(low, finding.used[-1])),
            overhead=None,
            s_min=None,
            settle=plan_runs(finding.used, "larger"),
        )
    profile = finding.twice.value
    low, high = min(low, profile.low or low), max(high, profile.high or high)
    n, base, b_crit = finding.fit.n, base_batch or finding.used[0], finding.fit.b_crit
    at_fit, at_low, at_high = (OVERHEAD * value + (1 + OVERHEAD) * base for value in (b_crit, low, high))
    overhead = Interval(at_fit, at_low, at_high, n)
    return replace(
        finding,
        twice=CriticalBatch(Definition.TWICE_SAMPLES, Interval(b_crit, low, high, n)),
        overhead=CriticalBatch(Definition.OVERHEAD_20, overhead, base_batch=base),
    )
