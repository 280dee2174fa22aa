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

        The sides are the next learning rates of its size and its neighbouring sizes, each within a doubling of its
        learning rate. So a search never ends by its model's prediction alone, nor without the runs that a fit over
        learning rates needs.
        """
        size, rate = self.sizes.index(best.global_batch_size), math.log2(best.learning_rate)
        tried = cells_of(list(outcomes))
        found: list[int] = []
        for step in (-1, 1):
            if not _inside(tried, self.sizes[size], rate, step).any():
                found += np.flatnonzero(_inside(cells, self.sizes[size], rate, step)).tolist()
            if 0 <= size + step < len(self.sizes) and not _inside(tried, self.sizes[size + step], rate, 0).any():
                found += np.flatnonzero(_inside(cells, self.sizes[size + step], rate, 0)).tolist()
        return found


def _inside(points: Cells, size: int, rate: float, side: int) -> Floats:
    """Which points have this size and a learning rate near the given one; of another rate, on that side, unless 0."""
    apart = points.rate - rate
    near = (np.abs(apart) < BESIDE) & (apart * side >= 0) & ((apart != 0) | (side == 0))
    return np.asarray((points.batch == math.log2(size)) & near)
