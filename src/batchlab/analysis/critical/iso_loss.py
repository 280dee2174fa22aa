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

from batchlab.analysis.critical.steps_finding import StepsFinding
from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch
from batchlab.core.errors import InputError

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


def noise_of_steps(runs: Sequence[BudgetRun], target: float, loss_sd: float, *, seed: int = 0) -> float | None:
    """The standard deviation of ln S that noise of `loss_sd` (relative) in every loss causes, over all batch sizes.

    Each draw adds Gaussian noise to the loss of every run and repeats tuning and crossing. None where that hardly ever
    reaches the target at any batch size.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn: dict[float, list[float]] = defaultdict(list)
    for _ in range(DRAWS):
        factors = 1 + loss_sd * generator.standard_normal(len(runs))
        noisy = [replace(run, loss=run.loss * float(f)) for run, f in zip(runs, factors, strict=True)]
        for point in points_at_loss(noisy, target):
            if point.steps is not None:
                drawn[point.batch].append(math.log(point.steps))
    variances = [float(np.var(values)) for values in drawn.values() if len(values) > DRAWS / 2]
    return math.sqrt(math.fsum(variances) / len(variances)) if variances else None


def critical_batch_from_budgets(
    runs: Sequence[BudgetRun],
    target: float,
    *,
    loss_sd: float,
    base_batch: float | None = None,
    seed: int = 0,
) -> StepsFinding:
    """Critical batch sizes at `target` with 95 % intervals that include every step from the losses to the curve.

    `loss_sd`: the relative spread of losses between seeds; 0 where it is not known.
    """
    points = points_at_loss(runs, target)
    noise = noise_of_steps(runs, target, loss_sd, seed=seed) if loss_sd > 0 else None
    return critical_batch(points, origin="budgets", noise_sd=noise, base_batch=base_batch)
