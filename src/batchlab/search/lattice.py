"""Which cells an adaptive search may still try: the allowed batch sizes × half doublings of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from batchlab.core.record import Outcome
from batchlab.search.surrogate import matern
from batchlab.search.trial import Trial, TrialOutcome

if TYPE_CHECKING:
    from batchlab.search.surrogate import Floats

STEPS_PER_DOUBLING = 2
"""Learning rates on the lattice per factor of two."""

MARGIN = 1.0
"""Doublings beyond the given sizes and learning rates at which the lowest loss may still lie by the prior."""

ROOM = 2.0
"""Doublings that stay open to either side of the best learning rate so far; so the search passes an edge instead of
reporting it."""

BESIDE = 1.1
"""Doublings within which a neighbour encloses the best learning rate: two steps of the lattice."""

AT_SCALED = 0.25
"""Doublings from the scaled learning rate below which it is reached: half a step of the lattice."""

Outcomes = Mapping[Trial, TrialOutcome]


@dataclass(frozen=True, slots=True)
class Cells:
    """Points of the lattice, as the surrogate sees them."""

    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    batch: Floats = field(init=False)
    rate: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", np.log2(np.array(self.sizes, dtype=float)))
        object.__setattr__(self, "rate", np.log2(np.array(self.rates, dtype=float)))


def cells_of(trials: Sequence[Trial]) -> Cells:
    """The cells of these trials."""
    return Cells(tuple(trial.global_batch_size for trial in trials), tuple(trial.learning_rate for trial in trials))


def similarity(cells: Cells, others: Cells) -> Floats:
    """Cells × others: how much a run at one says about the other, 1 for the same."""
    return matern(cells.batch, cells.rate, others.batch, others.rate)


@dataclass(frozen=True, slots=True)
class Lattice:
    """`learning_rates`: the range to start in, of which only the ends count; a single one is a choice and is kept.

    `start`: a learning rate that somebody expects to be best; the range reaches as far beyond it as beyond a best one.
    """

    sizes: tuple[int, ...]
    learning_rates: tuple[float, ...]
    start: float | None = None

    @property
    def log_sizes(self) -> tuple[float, float]:
        """log2 of the smallest and the largest size."""
        return math.log2(self.sizes[0]), math.log2(self.sizes[-1])

    def log_rates(self, outcomes: Outcomes, best: Trial | None) -> tuple[float, float]:
        """log2 of the learning rates between which the lowest loss may lie; wider where the best is near an end."""
        low, high = math.log2(self.learning_rates[0]), math.log2(self.learning_rates[-1])
        if len(self.learning_rates) == 1:
            return low, high
        # Where all diverged the lowest that did stands in for the best, so that the search goes on downwards.
        tried = [best] if best else [trial for trial, told in outcomes.items() if told.why is Outcome.DIVERGED]
        wanted = [math.log2(min(trial.learning_rate for trial in tried))] if tried else []
        if self.start is not None:
            wanted.append(math.log2(self.start))
        return min([low, *(rate - ROOM for rate in wanted)]), max([high, *(rate + ROOM for rate in wanted)])

    def rates(self, outcomes: Outcomes, best: Trial | None) -> tuple[float, ...]:
        """Half doublings from the lowest learning rate given, to three digits."""
        start = self.learning_rates[0]
        if len(self.learning_rates) == 1:
            return self.learning_rates
        low, high = (bound - math.log2(start) for bound in self.log_rates(outcomes, best))
        first = math.ceil(round((low - MARGIN) * STEPS_PER_DOUBLING, 6))
        last = math.floor(round((high + MARGIN) * STEPS_PER_DOUBLING, 6))
        return tuple(float(f"{start * 2 ** (step / STEPS_PER_DOUBLING):.3g}") for step in range(first, last + 1))

    def open_cells(self, outcomes: Outcomes, best: Trial | None) -> Cells:
        """Cells that may be tried: not yet tried, nor ruled out by a divergence, by memory or by too few steps."""
        too_high: dict[int, float] = {}
        no_memory, undertrained = math.inf, math.inf
        for trial, outcome in outcomes.items():
            size = trial.global_batch_size
            if outcome.why is Outcome.DIVERGED:
                too_high[size] = min(too_high.get(size, math.inf), trial.learning_rate)
            if outcome.why is Outcome.OUT_OF_MEMORY:
                no_memory = min(no_memory, size)
            if not outcome.judged:
                undertrained = min(undertrained, size)
        if undertrained <= self.sizes[0]:
            undertrained = math.inf  # all are, so they can only be compared with each other
        tried = {(trial.global_batch_size, trial.learning_rate) for trial in outcomes}
        cells = [
            (size, rate)
            for size in self.sizes
            if size < min(no_memory, undertrained)
            for rate in self.rates(outcomes, best)
            if rate < too_high.get(size, math.inf) and (size, rate) not in tried
        ]
        return Cells(tuple(size for size, _ in cells), tuple(rate for _, rate in cells))

    def beside(self, best: Trial, outcomes: Outcomes, cells: Cells) -> list[int]:
        """Indices of open cells that would enclose the best one on a side where nothing near was tried.

        The sides are the next learning rates of its size, and its neighbouring sizes. So a search never ends by its
        model's prediction alone, nor without the runs that a fit over learning rates needs. A divergence encloses
        nothing while a cell below it is open: close to where runs diverge the loss is often lowest.
        """
        place, rate = self.sizes.index(best.global_batch_size), math.log2(best.learning_rate)
        ended = {trial: told for trial, told in outcomes.items() if told.why is not Outcome.DIVERGED}
        tried = cells_of(list(ended))
        found: list[int] = []
        for step in (-1, 1):
            found += _missing(tried, cells, best.global_batch_size, rate, step)
            if 0 <= place + step < len(self.sizes):
                found += _beside_at(self.sizes[place + step], best, ended, cells)
        return found


def _beside_at(neighbour: int, best: Trial, ended: Outcomes, cells: Cells) -> list[int]:
    """The same at a neighbouring size: within a doubling of the best learning rate, and beyond the neighbour's own.

    The best learning rate grows with the batch size. A neighbour that was tried only where the best is, is judged at
    the wrong learning rate. So its own lowest loss is enclosed as well, above at a larger size and below at a smaller
    one, until the learning rate that is scaled in proportion to the size (the linear rule, Goyal et al. 2017,
    arXiv:1706.02677) is reached.
    """
    tried, rate = cells_of(list(ended)), math.log2(best.learning_rate)
    if near := _missing(tried, cells, neighbour, rate, 0):
        return near
    losses = [
        (told.val_loss, trial.learning_rate)
        for trial, told in ended.items()
        if trial.global_batch_size == neighbour and told.finite and told.val_loss is not None
    ]
    if not losses:
        return []
    doublings = math.log2(neighbour / best.global_batch_size)
    step, own = (1 if doublings > 0 else -1), math.log2(min(losses)[1])
    if (rate + doublings - own) * step < AT_SCALED:
        return []
    return _missing(tried, cells, neighbour, own, step)


def _missing(tried: Cells, cells: Cells, size: int, rate: float, side: int) -> list[int]:
    """Indices of the open cells on that side of the learning rate, where none was tried; see `_inside`."""
    if _inside(tried, size, rate, side).any():
        return []
    return [int(place) for place in np.flatnonzero(_inside(cells, size, rate, side))]


def _inside(points: Cells, size: int, rate: float, side: int) -> Floats:
    """Which points have this size and a learning rate near the given one; of another rate, on that side, unless 0."""
    apart = points.rate - rate
    near = (np.abs(apart) < BESIDE) & (apart * side >= 0) & ((apart != 0) | (side == 0))
    return np.asarray((points.batch == math.log2(size)) & near)
