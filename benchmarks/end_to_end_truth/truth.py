"""What a simulated study should have answered: expected losses, computed and not measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from batchlab.core.experiment import ScheduleConfig
from batchlab.core.schedule import Schedule
from batchlab.core.spec import MIN_STEPS
from batchlab.runs.divergence import FACTOR, window_steps
from batchlab.search.budget import steps_to_judge
from batchlab.simulated.machine import Simulation

Floats = npt.NDArray[np.float64]

FEWER = (0.99, 0.97, 0.94, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)
MORE = (1.01, 1.03, 1.06, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 4.0)
"""Multiples of the budget at which a cell's loss is computed, to see with how many tokens it reaches another's."""

LARGEST = 1024


@dataclass(frozen=True, slots=True)
class Cell:
    """An expected loss."""

    size: int
    rate: float
    loss: float


@dataclass(frozen=True)
class Truth:
    """Expected losses of a simulation under a schedule, at any batch size, learning rate and budget."""

    simulation: Simulation
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    _known: dict[tuple[int, float, int], float] = field(default_factory=dict)

    def losses(self, size: int, rates: Sequence[float], budget: int) -> list[float]:
        """Expected final losses; infinity where a run fails or overflows."""
        missing = [rate for rate in rates if (size, rate, budget) not in self._known]
        if missing:
            per_step = learning_rates(self.schedule, size, missing, budget)
            problem = self.simulation.problem
            moments = problem.moments(per_step, size)
            ends = ~(diverges(moments.curve, size) | self._fails(per_step))
            found = np.where(ends, problem.mean_loss(moments), math.inf)
            self._known.update(((size, rate, budget), float(loss)) for rate, loss in zip(missing, found, strict=True))
        return [self._known[size, rate, budget] for rate in rates]

    def _fails(self, per_step: Floats) -> npt.NDArray[np.bool_]:
        limit = self.simulation.machine.fails_above
        return per_step.max(axis=0) > (limit or math.inf)

    def loss(self, size: int, rate: float, budget: int) -> float:
        return self.losses(size, [rate], budget)[0]

    def deviation(self, size: int, rate: float, budget: int) -> float:
        """Standard deviation of the final loss over seeds."""
        per_step = learning_rates(self.schedule, size, [rate], budget)
        return float(self.simulation.problem.loss_deviations(per_step, size)[0])

    def best(self, sizes: Sequence[int], rates: Sequence[float], budget: int) -> Cell:
        """The lowest expected loss among the sizes that are judged."""
        cells = [
            Cell(size, rate, loss)
            for size in self.judged(sizes, budget)
            for rate, loss in zip(rates, self.losses(size, rates, budget), strict=True)
        ]
        return min(cells, key=lambda cell: cell.loss)

    def judged(self, sizes: Sequence[int], budget: int) -> Sequence[int]:
        """Those with enough steps to be judged by their loss; all, where none has."""
        least = steps_to_judge(self.schedule.warmup_fraction)
        return [size for size in sizes if budget // size >= least] or sizes

    def best_rate(self, size: int, near: float, budget: int) -> Cell:
        """The best learning rate of a size: half doublings around `near`, then the vertex of a parabola in log2."""
        while True:
            rates = [near * 2.0 ** (step / 2) for step in range(-4, 5)]
            losses = self.losses(size, rates, budget)
            place = int(np.argmin(losses))
            if 0 < place < len(rates) - 1 or not math.isfinite(losses[place]):
                break
            near = rates[place]
        if not all(map(math.isfinite, losses[place - 1 : place + 2])):
            return Cell(size, rates[place], losses[place])
        shift = vertex(*losses[place - 1 : place + 2])
        rate = rates[place] * 2.0 ** (shift / 2)
        return Cell(size, rate, self.loss(size, rate, budget))

    def optimum(self, near: Cell, budget: int) -> tuple[float, float]:
        """(batch size, learning rate) of the lowest loss at this budget over all powers of two that have 50 steps.

        The batch size is the vertex of the parabola in log2 through the best power of two and its neighbours, where
        it has two.
        """
        known: dict[int, Cell] = {}

        def at(size: int) -> Cell:
            if size not in known:
                known[size] = self.best_rate(size, near.rate, budget)
            return known[size]

        size = 2 ** round(math.log2(2 * near.size))  # it grows with the budget, and small sizes take long
        largest = min(LARGEST, 2 ** int(math.log2(budget // MIN_STEPS)))
        while True:
            around = [other for other in (size // 2, size, size * 2) if 1 <= other <= largest]
            lowest = min(around, key=lambda other: at(other).loss)
            if lowest == size:
                break
            size = lowest
        if len(around) < 3:
            return float(size), at(size).rate
        return size * 2.0 ** vertex(*(at(other).loss for other in around)), at(size).rate

    def extra_tokens(self, loss: float, best: Cell, budget: int) -> float:
        """Token-equivalents: by which share more tokens than `best` another cell takes to the loss that it ends at.

        `best` reaches `loss` with D′ tokens, in a run of its own; the other took the budget's D, so it takes D/D′ − 1
        more: fewer, below zero, where its loss is the lower one. Between computed budgets log D′ is interpolated.
        Infinity, or −1, beyond the last of them.
        """
        if loss == best.loss:
            return 0.0
        worse = loss > best.loss
        before, tokens = best.loss, float(budget)
        for share in FEWER if worse else MORE:
            there = max(1, round(share * budget / best.size)) * best.size
            here = self.loss(best.size, best.rate, there)
            if here >= loss if worse else here <= loss:
                part = (loss - before) / (here - before)
                return budget / (tokens * (there / tokens) ** part) - 1
            if there != tokens:
                before, tokens = here, float(there)
        return math.inf if worse else -1.0


def vertex(low: float, middle: float, high: float) -> float:
    """Where the parabola through (−1, low), (0, middle), (1, high) is lowest; 0 where it has no lowest point."""
    bend = low - 2 * middle + high
    return 0.5 * (low - high) / bend if 0 < bend < math.inf else 0.0


def diverges(curve: Floats, size: int) -> npt.NDArray[np.bool_]:
    """Which runs, one per column of expected losses, are ended by the rule of runs/divergence.py in expectation."""
    window = window_steps(size)
    whole = curve[: len(curve) // window * window]
    if not len(whole):
        return np.zeros(curve.shape[1], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):
        means = whole.reshape(-1, window, curve.shape[1]).mean(axis=1)
    return np.asarray(~np.isfinite(means).all(axis=0) | (means > FACTOR * means[0]).any(axis=0))


@cache
def _shape(schedule: ScheduleConfig, size: int, budget: int) -> Floats:
    curve = Schedule(schedule, 1.0, budget, size)
    return np.array([curve.mean(step * size, (step + 1) * size) for step in range(budget // size)])


def learning_rates(schedule: ScheduleConfig, size: int, peaks: Sequence[float], budget: int) -> Floats:
    """Learning rates of steps × runs."""
    return np.outer(_shape(schedule, size, budget), np.array(peaks))
