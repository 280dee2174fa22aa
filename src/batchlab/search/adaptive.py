"""Which batch × learning-rate cells to train, each chosen by what the ones before it taught.

A run goes where it is expected to gain most over the best so far (expected improvement under `surrogate`), on a lattice
of the allowed batch sizes and half octaves of the learning rate. It ends when another run would gain less than the
noise between seeds, and then repeats the best cell and its neighbour with more seeds, as the grid does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from batchlab.errors import InputError
from batchlab.record import Outcome
from batchlab.search.grid import Trial, TrialOutcome, best_by_size, more_seeds
from batchlab.search.prior import (
    MARGIN,
    Cells,
    EarlierStudy,
    Hint,
    before_any_run,
    cells_of,
    evidence_of,
    is_finite,
    moved,
)
from batchlab.search.surrogate import SEED_NOISE, Bowls, Evidence, Posterior, matern

if TYPE_CHECKING:
    from batchlab.search.surrogate import Floats

STEPS_PER_OCTAVE = 2
"""Learning rates on the lattice per factor of two."""

ROOM = 2.0
"""Octaves that stay open to either side of the best learning rate so far; so an edge is passed, not reported."""

FRUITLESS = 8
"""Runs without a single finite loss after which the search gives up."""

FEWEST = 5
"""Runs that a small `max_runs` spends on different cells before it keeps any for further seeds."""


class AdaptiveSearch:
    """Ask/tell search for the batch size and learning rate with the lowest loss; implements `protocols.Search`.

    `learning_rates`: the range to start in, of which only the ends count; it is left wherever the best lies near its
    end. A single one is a choice and is kept. `round_size` trials are asked at a time, the later ones as if the earlier
    had come out as predicted. The budget is `max_runs`, or `max_tokens` at `tokens_per_run`, or both; of it, further
    seeds of the best cell are reserved beyond the first five runs.

    Outcomes without a loss: a divergence rules out that learning rate and above at its size and makes bowls that find
    it harmless unlikely; out of memory rules out that size and larger, and says nothing of learning rates; any other
    failure makes its neighbourhood less attractive. Starved: that size and larger are left alone.

    `noise_percent`: standard deviation between seeds in percent of the loss. `smallest_gain_percent`: the search ends
    when no run is expected to gain more, by default the noise; 0 spends the whole budget. The same outcomes always give
    the same trials. InputError for what cannot be searched.
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
        max_tokens: int | None = None,
        tokens_per_run: int | None = None,
        seeds: int = 3,
        first_seed: int = 0,
        noise_percent: float = SEED_NOISE,
        smallest_gain_percent: float | None = None,
    ) -> None:
        self.sizes = tuple(sorted(set(global_batch_sizes)))
        self.learning_rates = tuple(sorted(set(learning_rates)))
        _check(self.sizes, self.learning_rates, hint, earlier, round_size, noise_percent)
        self.hint = hint
        self.earlier = earlier
        self.round_size = round_size
        self.max_runs = _budget(max_runs, max_tokens, tokens_per_run)
        self.seeds = seeds
        self.first_seed = first_seed
        self.noise_percent = noise_percent
        self.smallest_gain_percent = noise_percent if smallest_gain_percent is None else smallest_gain_percent
        self.stopped = ""
        """Why no further cell is tried, as a sentence; empty while the search goes on."""
        self.expected_gain_percent: float | None = None
        """Of the most promising cell, when last asked; None before the first finite loss."""
        self._outcomes: dict[Trial, TrialOutcome] = {}
        self._pending: tuple[Trial, ...] = ()
        self._seeds_asked = False
        self._moved: Bowls | None = None

    @property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """Everything told so far."""
        return dict(self._outcomes)

    @property
    def best(self) -> Trial | None:
        """The cell with the lowest loss at the first seed, a starved one only where all are; None without a loss."""
        bests = best_by_size(self._outcomes, self.first_seed)
        if not bests:
            return None
        size = min(bests, key=lambda s: (bests[s], s))
        return Trial(size, bests[size][1], self.first_seed)

    def ask(self) -> tuple[Trial, ...]:
        """The next round; the same one again until it is told; empty when the search is over."""
        if not self._pending and not self.stopped:
            self._pending = self._explore()
        if not self._pending and self.stopped and not self._seeds_asked:
            self._seeds_asked = True
            trials = more_seeds(best_by_size(self._outcomes, self.first_seed), self.first_seed, self.seeds)
            self._pending = tuple(trials[: self._left(reserved=0)])
        return self._pending

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for, in any order."""
        if set(proposals) != set(self._pending) or not len(self._pending) == len(proposals) == len(outcomes):
            raise ValueError("tell() takes the outcomes of exactly the round that ask() returned")
        told = dict(zip(proposals, outcomes, strict=True))
        self._outcomes.update((trial, told[trial]) for trial in self._pending)
        self._pending = ()

    def predict(
        self, global_batch_sizes: Sequence[int], learning_rates: Sequence[float]
    ) -> tuple[Sequence[float], Sequence[float]]:
        """(expected loss, its standard deviation in percent of the loss) at each pair of a size and a learning rate.

        ValueError before any finite loss.
        """
        evidence = self._evidence()
        if not len(evidence.percent):
            raise ValueError("nothing can be predicted before a run has a finite loss")
        cells = Cells(tuple(global_batch_sizes), tuple(learning_rates))
        mean, deviation = self._posterior(evidence).predict(cells.batch, cells.rate)
        losses = [outcome.loss for _, outcome in self._finite() if outcome.loss is not None]
        expected = np.exp(mean / 100) if min(losses) > 0 else mean * max(map(abs, losses)) / 100
        return expected.tolist(), deviation.tolist()

    # What is asked next

    def _explore(self) -> tuple[Trial, ...]:
        count = min(self.round_size, self._left())
        cells = self._open_cells()
        finite = self._finite()
        if count < 1:
            self.stopped = f"all {len(self._outcomes)} runs of the budget that are not kept for seeds are spent"
        elif not cells.sizes:
            self.stopped = "every cell that is left ran out of memory, is starved or lies above a divergence"
        elif not finite and len(self._outcomes) >= FRUITLESS:
            self.stopped = f"none of {len(self._outcomes)} runs has a finite loss"
        elif len(finite) >= FEWEST and len({outcome.loss for _, outcome in finite}) == 1:
            self.stopped = f"all {len(finite)} losses are identical, so there is nothing to choose by"
        if self.stopped:
            return ()
        return self._first_cells(cells, count) if not finite else self._promising_cells(cells, count)

    def _first_cells(self, cells: Cells, count: int) -> tuple[Trial, ...]:
        """Before any loss is known: the likeliest place, and for the others of the round places apart from it."""
        near = self._posterior(self._evidence()).nearness(cells.batch, cells.rate) * self._works(cells)
        picked: list[int] = []
        if self.hint and not self.earlier and not self._outcomes:
            away = (cells.batch - math.log2(self.hint.global_batch_size)) ** 2
            picked.append(int(np.argmin(away + (cells.rate - math.log2(self.hint.learning_rate)) ** 2)))
        while len(picked) < min(count, len(cells.sizes)):
            apart = np.ones_like(near)
            for other in picked:
                apart *= 1 - _similar(cells, cells, other)
            apart[picked] = -1.0
            picked.append(_first_highest(near * apart))
        return tuple(self._trial(cells, place) for place in picked)

    def _promising_cells(self, cells: Cells, count: int) -> tuple[Trial, ...]:
        evidence = self._evidence()
        works = self._works(cells)
        best = float(evidence.percent[self._eligible()].min())
        picked: list[int] = []
        while len(picked) < min(count, len(cells.sizes)):
            posterior = self._posterior(evidence)
            gains = posterior.expected_gain(cells.batch, cells.rate, best) * works
            gains[picked] = -1.0
            place = _first_highest(gains)
            if not picked:
                self.expected_gain_percent = float(gains[place])
            if gains[place] < self.smallest_gain_percent:
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
            self.stopped = (
                f"another run is expected to gain {self.expected_gain_percent:.2g} % of the loss, less than the "
                f"{self.smallest_gain_percent:.2g} % by which seeds differ"
            )
        return tuple(self._trial(cells, place) for place in picked)

    def _trial(self, cells: Cells, place: int) -> Trial:
        return Trial(cells.sizes[place], cells.rates[place], self.first_seed)

    def _left(self, reserved: int | None = None) -> int:
        if self.max_runs is None:
            return 10**9
        if reserved is None:
            reserved = min(self.seeds - 1, max(0, self.max_runs - FEWEST))
        return max(0, self.max_runs - reserved - len(self._outcomes))

    # What is possible

    def _range(self) -> tuple[float, float]:
        """log2 of the learning rates between which the lowest loss may lie; wider where the best is near an end."""
        low, high = math.log2(self.learning_rates[0]), math.log2(self.learning_rates[-1])
        if len(self.learning_rates) == 1:
            return low, high
        # Where all diverged the lowest that did stands in for the best, so that the search goes on downwards.
        tried = [self.best] if self.best else [t for t, o in self._outcomes.items() if o.why is Outcome.DIVERGED]
        wanted = [math.log2(min(trial.learning_rate for trial in tried))] if tried else []
        if self.hint:
            wanted.append(math.log2(self.hint.learning_rate))
        return min([low, *(rate - ROOM for rate in wanted)]), max([high, *(rate + ROOM for rate in wanted)])

    def _lattice(self) -> tuple[float, ...]:
        """Half octaves from the lowest learning rate given, to three digits."""
        start = self.learning_rates[0]
        if len(self.learning_rates) == 1:
            return self.learning_rates
        low, high = (bound - math.log2(start) for bound in self._range())
        first = math.ceil(round((low - MARGIN) * STEPS_PER_OCTAVE, 6))
        last = math.floor(round((high + MARGIN) * STEPS_PER_OCTAVE, 6))
        return tuple(float(f"{start * 2 ** (step / STEPS_PER_OCTAVE):.3g}") for step in range(first, last + 1))

    def _open_cells(self) -> Cells:
        """Cells that may be tried: not yet tried, nor ruled out."""
        too_high: dict[int, float] = {}
        no_memory, starved = math.inf, math.inf
        for trial, outcome in self._outcomes.items():
            size = trial.global_batch_size
            if outcome.why is Outcome.DIVERGED:
                too_high[size] = min(too_high.get(size, math.inf), trial.learning_rate)
            if outcome.why is Outcome.OUT_OF_MEMORY:
                no_memory = min(no_memory, size)
            if not outcome.judged:
                starved = min(starved, size)
        if starved <= self.sizes[0]:
            starved = math.inf  # all are, so they can only be compared with each other
        tried = {(trial.global_batch_size, trial.learning_rate) for trial in self._outcomes}
        cells = [
            (size, rate)
            for size in self.sizes
            if size < min(no_memory, starved)
            for rate in self._lattice()
            if rate < too_high.get(size, math.inf) and (size, rate) not in tried
        ]
        return Cells(tuple(size for size, _ in cells), tuple(rate for _, rate in cells))

    def _beside_best(self, cells: Cells) -> list[int]:
        """Places of open cells that enclose the best one on a side where nothing near was tried.

        The sides are the next learning rates of its size and its neighbouring sizes, each within an octave of its
        learning rate. So the search never ends on the word of a model alone, nor without the runs that a fit over
        learning rates needs.
        """
        best = self.best
        if best is None:
            return []
        size, rate = self.sizes.index(best.global_batch_size), math.log2(best.learning_rate)
        tried = cells_of(list(self._outcomes))
        found: list[int] = []
        for step in (-1, 1):
            for over_sizes in (False, True):
                if over_sizes and not 0 <= size + step < len(self.sizes):
                    continue
                wanted = math.log2(self.sizes[size + step] if over_sizes else best.global_batch_size)

                def inside(points: Cells, wanted: float = wanted, away: int = 0 if over_sizes else step) -> Floats:
                    apart = points.rate - rate
                    near = (np.abs(apart) < 1.1) & (apart * away >= 0) & ((apart != 0) | (away == 0))
                    return np.asarray((points.batch == wanted) & near)

                if not inside(tried).any():
                    found += np.flatnonzero(inside(cells)).tolist()
        return found

    def _works(self, cells: Cells) -> Floats:
        """Share of the runs near each cell that came to an end, where some failed for reasons of their own."""
        failed, ended = [], []
        for trial, outcome in self._outcomes.items():
            if outcome.why in (None, Outcome.FAILED) and not is_finite(outcome):
                failed.append(trial)
            elif outcome.why is not Outcome.OUT_OF_MEMORY:
                ended.append(trial)
        if not failed:
            return np.ones(len(cells.sizes))
        near_failed, near_ended = (_similar(cells, cells_of(trials)).sum(axis=1) for trials in (failed, ended))
        return np.asarray((1 + near_ended) / (1 + near_ended + 2 * near_failed))

    # What is known

    def _finite(self) -> list[tuple[Trial, TrialOutcome]]:
        return [(trial, outcome) for trial, outcome in self._outcomes.items() if is_finite(outcome)]

    def _eligible(self) -> list[int]:
        """Places among the finite runs of those that may be called best."""
        finite = self._finite()
        judged = [place for place, (_, outcome) in enumerate(finite) if outcome.judged]
        return judged or list(range(len(finite)))

    def _evidence(self) -> Evidence:
        return evidence_of(self._outcomes, self.noise_percent)

    def _posterior(self, evidence: Evidence) -> Posterior:
        return Posterior(self._bowls(), evidence)

    def _bowls(self) -> Bowls:
        """Possible surfaces before this study's own runs."""
        if self.earlier is not None and self._moved is None:
            self._moved = moved(self.earlier, self.sizes, self.learning_rates, self.hint, self.noise_percent)
        return before_any_run(self._batch_range(), self._range(), self.hint, self._moved)

    def _batch_range(self) -> tuple[float, float]:
        return math.log2(self.sizes[0]), math.log2(self.sizes[-1])


def _first_highest(values: Floats) -> int:
    """Place of the highest value; the first of those that differ only by rounding, which is not the same everywhere."""
    highest = float(values.max())
    return int(np.argmax(values >= highest - 1e-6 * abs(highest)))


def _similar(cells: Cells, others: Cells, place: int | None = None) -> Floats:
    """Correlation of each cell with each of the others, or with the one at `place`."""
    chosen = slice(None) if place is None else slice(place, place + 1)
    found = matern(cells.batch, cells.rate, others.batch[chosen], others.rate[chosen])
    return found if place is None else np.asarray(found[:, 0])


def _budget(max_runs: int | None, max_tokens: int | None, tokens_per_run: int | None) -> int | None:
    if max_tokens is None:
        return max_runs
    if tokens_per_run is None or tokens_per_run < 1:
        raise InputError("A budget in tokens needs the tokens of one run; give tokens_per_run, or max_runs instead.")
    runs = max_tokens // tokens_per_run
    if runs < 1:
        raise InputError(f"A budget of {max_tokens:,} tokens is less than one run of {tokens_per_run:,}; give more.")
    return runs if max_runs is None else min(runs, max_runs)


def _check(
    sizes: Sequence[int],
    rates: Sequence[float],
    hint: Hint | None,
    earlier: EarlierStudy | None,
    round_size: int,
    noise_percent: float,
) -> None:
    if not sizes or not rates:
        raise InputError("A sweep needs at least one batch size and one learning rate.")
    if sizes[0] < 1 or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise InputError("Batch sizes are whole numbers of at least 1, learning rates positive finite numbers.")
    if round_size < 1:
        raise InputError(f"Rounds of {round_size} runs were asked; the least is 1.")
    if not noise_percent >= 0:
        raise InputError(f"Noise of {noise_percent} % was given; it is at least 0.")
    if hint is not None:
        given = (hint.global_batch_size, hint.learning_rate, hint.batch_octaves, hint.rate_octaves)
        if not all(math.isfinite(value) and value > 0 for value in given):
            raise InputError(
                f"The hint of batch {hint.global_batch_size:g} at learning rate {hint.learning_rate:g} cannot be used; "
                "both, and its octaves of doubt, are positive finite numbers."
            )
    if earlier is not None and not (math.isfinite(earlier.tokens_ratio) and earlier.tokens_ratio > 0):
        raise InputError(f"This budget is {earlier.tokens_ratio} × that of the earlier study; give a positive number.")
