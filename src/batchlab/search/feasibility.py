"""Which cells will end with a result, where some runs failed without saying why.

Such a failure is no divergence: it may come from the code, the machine or a limit of the loader, and then says nothing
about the loss nearby. But failures tend to have an edge. Whatever fails at one batch size or learning rate also fails
beyond it. So the cells that work are taken to be a rectangle over log2 batch size × log2 learning rate, each of whose
sides may or may not exist and may lie anywhere. Inside it a run fails by chance only. Every such rectangle is weighed
by the runs so far, and the expected improvement of a cell is multiplied by the probability that it works (Gardner et
al. 2014, Bayesian optimization with inequality constraints, whose Gaussian process this replaces).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchlab.core.record import Outcome
from batchlab.search.lattice import Cells, Outcomes, cells_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchlab.search.surrogate import Floats

BATCH_SIDE = 0.1
"""Prior probability that sizes below, and that sizes above, some batch size fail."""

RATE_SIDE = 0.15
"""The same of learning rates."""

BY_CHANCE = ((0.03, 0.8), (0.3, 0.2))
"""Shares of the runs inside that fail by chance, each with its prior probability."""

OUTSIDE = 0.95
"""Share of the runs outside that fail: a run that ended does not rule out a side for certain."""


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Possible ranges along one axis, low < high, and the prior weight of each."""

    low: Floats
    high: Floats
    weight: Floats

    def holds(self, points: Floats) -> NDArray[np.float64]:
        """Ranges × points: 1 where the point lies inside."""
        inside = (points[None, :] > self.low[:, None]) & (points[None, :] < self.high[:, None])
        return inside.astype(float)


def share_that_ends(cells: Cells, outcomes: Outcomes) -> Floats:
    """Expected share of runs at each cell that end with a result; 1 everywhere until a run failed without a reason."""
    known = {trial: told for trial, told in outcomes.items() if told.why is not Outcome.OUT_OF_MEMORY}
    failed = np.array([not told.finite and told.why in (None, Outcome.FAILED) for told in known.values()], dtype=bool)
    if not failed.any():
        return np.ones(len(cells.sizes))
    runs = cells_of(list(known))
    batches = _ranges(np.concatenate([runs.batch, cells.batch]), BATCH_SIDE)
    rates = _ranges(np.concatenate([runs.rate, cells.rate]), RATE_SIDE)
    prior = batches.weight[:, None] * rates.weight[None, :]
    beyond = np.where(failed, math.log(OUTSIDE), math.log(1 - OUTSIDE))
    total, works = 0.0, np.zeros(len(cells.sizes))
    for chance, weight in BY_CHANCE:
        within = np.where(failed, math.log(chance), math.log(1 - chance))
        fit = beyond.sum() + (batches.holds(runs.batch) * (within - beyond)) @ rates.holds(runs.rate).T
        believed = weight * prior * np.exp(fit)
        mass = float(believed.sum())
        inside = np.einsum("bc,br,rc->c", batches.holds(cells.batch), believed, rates.holds(cells.rate), optimize=True)
        works += inside * (1 - chance) + (mass - inside) * (1 - OUTSIDE)
        total += mass
    return works / total


def _ranges(points: Floats, side: float) -> _Ranges:
    """Every range whose ends lie between two neighbouring points or nowhere."""
    places = np.unique(np.round(points, 4))
    between = (places[1:] + places[:-1]) / 2
    weight = np.concatenate([[1 - side], np.full(len(between), side / max(1, len(between)))])
    low, high = np.meshgrid(np.append(-np.inf, between), np.append(np.inf, between), indexing="ij")
    possible = low < high
    return _Ranges(low[possible], high[possible], np.outer(weight, weight)[possible])
