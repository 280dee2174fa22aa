"""Which batch × learning-rate cells to train, each chosen by the outcomes of those before it.

A run goes where it is expected to gain most over the best so far (expected improvement under `surrogate`), on the
`lattice` of the allowed batch sizes and half doublings of the learning rate. The search ends when another run would
gain less than the noise between seeds; then the same `repeats` follow as after a grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from batchlab.core.errors import InputError
from batchlab.search.budget import FEWEST
from batchlab.search.feasibility import share_that_ends
from batchlab.search.grid import UNBOUNDED
from batchlab.search.lattice import Cells, Lattice, similarity
from batchlab.search.prior import (
    EarlierStudy,
    Hint,
    after_study,
    before_any_run,
    evidence_of,
    moved,
    noise_between_seeds,
    repeated_cells,
    require_start,
)
from batchlab.search.repeats import Repeats, best_by_size
from batchlab.search.surrogate import SEED_NOISE, Basins, Evidence, Posterior
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.storage.decisions import GainBound, SearchStop, StopReason

if TYPE_CHECKING:
    from batchlab.search.surrogate import Floats

FRUITLESS = 8
"""Runs without a single finite loss after which the search ends."""

ENOUGH = 12
"""Runs on different cells that a large `total_runs` leaves before all repeats are kept: nine in ten replays of
published runs had stopped by themselves by then."""


class AdaptiveSearch:
    """Ask/tell search for the batch size and learning rate with the lowest loss; implements `protocols.Search`.

    `learning_rates`: the range to start in, of which only the ends count; the search leaves it wherever the best lies
    near an end. A single one is a choice and is kept. `round_size` trials are asked for at a time, the later ones as if
    the earlier had the predicted outcome.

    `max_runs` counts different cells; further seeds come on top. `total_runs` bounds all runs together. Of these,
    further seeds of the best cell are reserved beyond the first five runs, and all repeats beyond twelve.

    Outcomes without a loss: a divergence rules out that learning rate and above at its size, and makes basins unlikely
    in which it would not diverge; out of memory rules out that size and larger, and is no evidence about learning
    rates; after any other failure a side of the lattice may not work (`feasibility`). An undertrained size is not
    trained further, nor are larger ones.

    `noise_percent`: assumed standard deviation between seeds in percent of the loss; after five runs the best cell is
    run again to measure it. `smallest_gain_percent`: the search ends when no run is expected to gain more, by default
    the noise; 0 spends the whole budget. The same outcomes always give the same trials. InputError for what cannot be
    searched.
    """

    def __init__(
        self,
        global_batch_sizes: Sequence[int],
        learning_rates: Sequence[float],
        *,
        hint: Hint | None = None,
        earlier: EarlierStudy | None = None,
        round_size: int = 1,
        max_runs: int | None = None,
        total_runs: int | None = None,
        seeds: int = 3,
        confirm: int = 0,
        first_seed: int = 0,
        noise_percent: float = SEED_NOISE,
        smallest_gain_percent: float | None = None,
    ) -> None:
        self.sizes = tuple(sorted(set(global_batch_sizes)))
        self.learning_rates = tuple(sorted(set(learning_rates)))
        _check(self.sizes, self.learning_rates, round_size, noise_percent)
        require_start(hint, earlier)
        self.hint = hint
        self.earlier = earlier
        self.round_size = round_size
        self.max_runs = max_runs
        self.total_runs = total_runs
        self.lattice = Lattice(self.sizes, self.learning_rates, hint.learning_rate if hint else None)
        self.repeats = Repeats(seeds, confirm, first_seed)
        self.noise_percent = noise_percent
        self.smallest_gain_percent = smallest_gain_percent
        self.stopped: SearchStop | None = None
        """Why no further cell is tried; None while the search goes on."""
        self.expected_gain_percent: float | None = None
        """Of the most promising cell, when last asked; None before the first finite loss."""
        self._outcomes: dict[Trial, TrialOutcome] = {}
        self._pending: tuple[Trial, ...] = ()
        self._moved: Basins | None = None

    @property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """Everything told so far."""
        return dict(self._outcomes)

    @property
    def best(self) -> Trial | None:
        """The cell with the lowest loss at the first seed; undertrained only where all are; None without a loss."""
        bests = best_by_size(self._outcomes, self.repeats.first_seed)
        if not bests:
            return None
        return min(bests.values(), key=lambda found: (found[0], found[1].learning_rate, found[1].global_batch_size))[1]

    def ask(self) -> tuple[Trial, ...]:
        """The next round; the same one again until it is told; empty when the search is over."""
        if not self._pending and not self.stopped:
            self._pending = self._explore()
        if not self._pending and self.stopped:
            self._pending = self.repeats.next(self._outcomes, self._runs_left())
        return self._pending

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for, in any order."""
        if set(proposals) != set(self._pending) or not len(self._pending) == len(proposals) == len(outcomes):
            raise ValueError("tell() takes the outcomes of exactly the round that ask() returned")
        told = dict(zip(proposals, outcomes, strict=True))
        self._outcomes.update((trial, told[trial]) for trial in self._pending)
        self._pending = ()

    # What is asked next

    def _explore(self) -> tuple[Trial, ...]:
        count = min(self.round_size, self._left())
        cells = self.lattice.open_cells(self._outcomes, self.best)
        finite = self._finite()
        if count < 1:
            self.stopped = self._stop_at_budget(cells)
        elif not cells.sizes:
            self.stopped = self._stop(StopReason.NO_CELL_LEFT)
        elif not finite and len(self._outcomes) >= FRUITLESS:
            self.stopped = self._stop(StopReason.NO_FINITE_LOSS)
        elif len(finite) >= FEWEST and len({outcome.val_loss for _, outcome in finite}) == 1:
            self.stopped = self._stop(StopReason.EQUAL_LOSSES)
        if self.stopped:
            return ()
        if not finite:
            return self._first_cells(cells, count)
        again = self._again(finite)
        return again + self._promising_cells(cells, count - len(again)) if count > len(again) else again

    def _again(self, finite: list[tuple[Trial, TrialOutcome]]) -> tuple[Trial, ...]:
        """The best cell with another seed, once: the noise that ends the search should be measured, not assumed."""
        known = len({trial.seed for trial in self._outcomes}) > 1
        if known or self.repeats.seeds < 2 or len(finite) < FEWEST or self._left() < FEWEST or self.best is None:
            return ()
        return (replace(self.best, seed=self.repeats.first_seed + 1),)

    def _first_cells(self, cells: Cells, count: int) -> tuple[Trial, ...]:
        """Before any loss is known: the likeliest cell, and for the rest of the round cells far from it."""
        near = self._posterior(self._evidence()).nearness(cells.batch, cells.rate) * share_that_ends(
            cells, self._outcomes
        )
        picked: list[int] = []
        if self.hint and not self._outcomes:
            batch, rate = self.hint.start
            picked.append(int(np.argmin((cells.batch - batch) ** 2 + (cells.rate - rate) ** 2)))
        while len(picked) < min(count, len(cells.sizes)):
            apart = np.ones_like(near)
            for other in picked:
                apart *= 1 - similarity(cells, cells)[:, other]
            apart[picked] = -1.0
            picked.append(_first_highest(near * apart))
        return tuple(self._trial(cells, place) for place in picked)

    def _promising_cells(self, cells: Cells, count: int) -> tuple[Trial, ...]:
        evidence = self._evidence()
        works = share_that_ends(cells, self._outcomes)
        best = float(evidence.percent[self._eligible()].min())
        picked: list[int] = []
        while len(picked) < min(count, len(cells.sizes)):
            posterior = self._posterior(evidence)
            gains = posterior.expected_gain(cells.batch, cells.rate, best) * works
            gains[picked] = -1.0
            place = _first_highest(gains)
            if not picked:
                self.expected_gain_percent = float(gains[place])
            if gains[place] < self._least_gain():
                beside = [other for other in self._beside_best(cells) if other not in picked]
                if not beside:
                    break
                place = max(beside, key=lambda other: (gains[other], -other))
            picked.append(place)
            if len(picked) < count:
                believed = posterior.predict(cells.batch[[place]], cells.rate[[place]])[0]
                evidence = replace(
                    evidence,
                    batch=np.append(evidence.batch, cells.batch[place]),
                    rate=np.append(evidence.rate, cells.rate[place]),
                    percent=np.append(evidence.percent, believed),
                )
                best = min(best, float(believed[0]))
        if not picked:
            self.stopped = self._stop(StopReason.LITTLE_TO_GAIN, enclosed=True)
        return tuple(self._trial(cells, place) for place in picked)

    def _stop_at_budget(self, cells: Cells) -> SearchStop:
        """All runs are spent; with the gain expected of another one, where that can be computed."""
        if not self._finite() or not cells.sizes:
            return self._stop(StopReason.RUNS_SPENT)
        evidence = self._evidence()
        best = float(evidence.percent[self._eligible()].min())
        gains = self._posterior(evidence).expected_gain(cells.batch, cells.rate, best)
        self.expected_gain_percent = float(gains.max())
        return self._stop(StopReason.RUNS_SPENT, enclosed=not self._beside_best(cells))

    def _stop(self, reason: StopReason, *, enclosed: bool | None = None) -> SearchStop:
        """`enclosed` is given where a gain was computed."""
        repeated = sum(map(len, repeated_cells(self._outcomes)))
        bound = GainBound.MEASURED_NOISE if repeated else GainBound.ASSUMED_NOISE
        if self.smallest_gain_percent is not None:
            bound = GainBound.REQUESTED
        known = enclosed is not None
        return SearchStop(
            reason=reason,
            runs=len(self._outcomes),
            finite_runs=len(self._finite()),
            expected_gain_percent=self.expected_gain_percent if known else None,
            least_gain_percent=self._least_gain() if known else None,
            bound=bound if known else None,
            repeated_runs=repeated,
            enclosed=enclosed,
        )

    def _least_gain(self) -> float:
        return self._noise() if self.smallest_gain_percent is None else self.smallest_gain_percent

    def _noise(self) -> float:
        return noise_between_seeds(self._outcomes, self.noise_percent)

    def _trial(self, cells: Cells, place: int) -> Trial:
        return Trial(cells.sizes[place], cells.rates[place], self.repeats.first_seed)

    def _left(self) -> int:
        """Different cells that may still be tried."""
        tried = len({(trial.global_batch_size, trial.learning_rate) for trial in self._outcomes})
        cells = UNBOUNDED if self.max_runs is None else self.max_runs - tried
        if self.total_runs is not None:
            of_best = min(self.repeats.seeds - 1, max(0, self.total_runs - FEWEST))
            reserved = min(self.repeats.runs(len(self.sizes)), max(of_best, self.total_runs - ENOUGH))
            repeated = len(self._outcomes) - tried
            cells = min(cells, self._runs_left() - max(0, reserved - repeated))
        return max(0, cells)

    def _runs_left(self) -> int:
        return UNBOUNDED if self.total_runs is None else max(0, self.total_runs - len(self._outcomes))

    def _beside_best(self, cells: Cells) -> list[int]:
        return self.lattice.beside(self.best, self._outcomes, cells) if self.best else []

    # What is known

    def _finite(self) -> list[tuple[Trial, TrialOutcome]]:
        return [(trial, outcome) for trial, outcome in self._outcomes.items() if outcome.finite]

    def _eligible(self) -> list[int]:
        """Indices among the finite runs of those that may be called best."""
        finite = self._finite()
        judged = [place for place, (_, outcome) in enumerate(finite) if outcome.judged]
        return judged or list(range(len(finite)))

    def _evidence(self) -> Evidence:
        return evidence_of(self._outcomes, self._noise())

    def _posterior(self, evidence: Evidence) -> Posterior:
        return Posterior(self._basins(), evidence)

    def _basins(self) -> Basins:
        """Possible surfaces before this study's own runs."""
        if self.earlier is not None and self._moved is None:
            self._moved = moved(self.earlier, self.sizes, self.learning_rates, self.noise_percent)
        sizes, rates = self.lattice.log_sizes, self.lattice.log_rates(self._outcomes, self.best)
        if self._moved is not None:
            return after_study(self._moved, sizes, rates, len(self._outcomes))
        return before_any_run(sizes, rates, self.hint)


def _first_highest(values: Floats) -> int:
    """Index of the highest value; the first of those that differ by rounding only, which depends on the machine."""
    highest = float(values.max())
    return int(np.argmax(values >= highest - 1e-6 * abs(highest)))


def _check(sizes: Sequence[int], rates: Sequence[float], round_size: int, noise_percent: float) -> None:
    if not sizes or not rates:
        raise InputError("A sweep needs at least one batch size and one learning rate.")
    if sizes[0] < 1 or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise InputError("Batch sizes are whole numbers of at least 1, learning rates positive finite numbers.")
    if round_size < 1:
        raise InputError(f"Rounds of {round_size} runs were asked for; the least is 1.")
    if not noise_percent >= 0:
        raise InputError(f"Noise of {noise_percent} % was given; it is at least 0.")
