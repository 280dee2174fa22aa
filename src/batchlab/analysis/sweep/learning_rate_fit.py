"""The best learning rate of one batch size between the ones that were tried, where a local fit supports it.

A parabola in log2(learning rate), with a cubic term from five cells on, because the true curve is skewed: on public
sweeps twice too high costs about 2.5 times as much as twice too low. For such a loss the learning rate with the least
expected cost lies below the estimate, the more so the less it is known: for 2·(exp(k·u) − 1 − k·u)/k² and an estimate
with a Gaussian error of σ doublings it is k·σ²/2 doublings lower (Zellner 1986, Bayesian estimation under LINEX loss).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from batchlab.analysis.sweep.noise import Noise, comparable_means
from batchlab.analysis.values import Cell, FitProblem, LrFit, NoFit

FIT_WINDOW = 2.0
"""Doublings around the best cell whose cells enter the fit, besides its two neighbours."""

FLAT = 1e-9
"""Curvature per doubling² below this share of the loss is rounding, not shape."""

FIT_REACH = 1.5
"""Doublings from the best cell within which a fitted best learning rate is believed."""

SKEW = 0.9
"""k: 2^k is how much more twice too high costs than twice too low, roughly (surrogate.SKEW has the sources)."""

MIN_CELLS = 3
"""Cells with a finite loss that a parabola needs."""

CUBIC_FROM = 5
"""Cells from which on a cubic term is fitted."""

UNKNOWN_DOUBLINGS = 0.3
"""Standard error of the fitted best where noise was not measured: one optimum on a grid of doublings, 1/√12."""


def fit_learning_rate(cells: Sequence[Cell], best: Cell | None, noise: Noise | None = None) -> LrFit:
    """Least squares through the best cell, its neighbours and what lies within two doublings.

    Valid only with at least three finite cells, one on each side of the best, positive curvature, and a vertex that
    lies between the cells used and within 1.5 doublings of the best one. Otherwise `next_learning_rate` is the one more
    run that would help most, or None where no run of this size would.
    """
    finite = [cell for cell in cells if cell.losses]
    if best is None or not finite:
        return LrFit(NoFit(FitProblem.TOO_FEW, finite=0))
    place = finite.index(best)
    if len(finite) < MIN_CELLS or place in (0, len(finite) - 1):
        problem = FitProblem.TOO_FEW if len(finite) < MIN_CELLS else FitProblem.AT_EDGE
        return LrFit(NoFit(problem, len(finite)), next_learning_rate=_beyond(cells, finite, place))
    used = [
        cell
        for i, cell in enumerate(finite)
        if abs(i - place) <= 1 or abs(math.log2(cell.learning_rate / best.learning_rate)) <= FIT_WINDOW
    ]
    rates = tuple(cell.learning_rate for cell in used)
    means = comparable_means(used)
    x = np.array([math.log2(rate / best.learning_rate) for rate in rates])
    y = np.array([means[rate] for rate in rates])
    scale = FLAT * max(map(abs, means.values()))
    vertex, curvature, loss = _cubic(x, y, scale) or _parabola(x, y, scale)
    between = _middle(rates, best)
    if curvature is None:
        return LrFit(NoFit(FitProblem.NOT_CONVEX, len(finite)), learning_rates=rates, next_learning_rate=between)
    problem = FitProblem.OUTSIDE if not x[0] < vertex < x[-1] else FitProblem.TOO_FAR
    if problem is FitProblem.OUTSIDE or abs(vertex) > FIT_REACH:
        no_fit = NoFit(problem, len(finite), abs(vertex))
        return LrFit(no_fit, curvature=curvature, learning_rates=rates, next_learning_rate=between)
    doublings = _standard_error(x, vertex, curvature, noise)
    return LrFit(
        None,
        best.learning_rate * 2**vertex,
        loss,
        curvature,
        rates,
        doublings=doublings,
        cautious_learning_rate=best.learning_rate * 2 ** (vertex - SKEW * doublings**2 / 2),
    )


def _parabola(x: NDArray[np.float64], y: NDArray[np.float64], scale: float) -> tuple[float, float | None, float]:
    """(vertex, curvature, loss there); curvature None where it is not positive."""
    a, b, c = (float(value) for value in np.polyfit(x, y, 2))
    if not a > scale:
        return 0.0, None, c
    return -b / (2 * a), a, c - b * b / (4 * a)


def _cubic(x: NDArray[np.float64], y: NDArray[np.float64], scale: float) -> tuple[float, float | None, float] | None:
    """The lowest point of a cubic between the outer cells; None with too few cells or where it has none there."""
    if len(x) < CUBIC_FROM:
        return None
    d, c, b, a = (float(value) for value in np.polyfit(x, y, 3))
    below_root = c * c - 3 * b * d
    if below_root <= 0 or c + math.sqrt(below_root) <= 0:
        return None
    vertex, curvature = -b / (c + math.sqrt(below_root)), math.sqrt(below_root)  # the lower of the two, without 1/d
    if not (x[0] < vertex < x[-1] and curvature > scale):
        return None
    return vertex, curvature, a + vertex * (b + vertex * (c + vertex * d))


def _standard_error(x: NDArray[np.float64], vertex: float, curvature: float, noise: Noise | None) -> float:
    """Standard error of the vertex in doublings (delta method): that of the slope there over twice the curvature."""
    if noise is None or len(x) < 3:
        return UNKNOWN_DOUBLINGS
    design = np.stack([np.ones_like(x), x - vertex, (x - vertex) ** 2], axis=1)
    slope = math.sqrt(float(np.linalg.inv(design.T @ design)[1, 1])) * noise.sd
    return min(slope / (2 * curvature), FIT_REACH)


def _beyond(cells: Sequence[Cell], finite: Sequence[Cell], place: int) -> float | None:
    """One doubling past the end at which the best lies, or half-way to a cell there that has no loss.

    Downwards first: a size whose only finite cell is its best is more likely too high than too low.
    """
    rates = [cell.learning_rate for cell in cells]
    here = finite[place].learning_rate
    if place == 0:
        below = [rate for rate in rates if rate < here]
        return math.sqrt(here * max(below)) if below else here / 2
    above = [rate for rate in rates if rate > here]
    return math.sqrt(here * min(above)) if above else here * 2


def _middle(rates: Sequence[float], best: Cell) -> float:
    """Half-way to the lower neighbour of the best: when unsure go lower."""
    below: Mapping[float, float] = {best.learning_rate / rate: rate for rate in rates if rate < best.learning_rate}
    return math.sqrt(best.learning_rate * below[min(below)])
