"""A grid over batch size × learning rate, in rounds, coarse first.

Rounds: (1) every size at every other learning rate, (2) the learning rates between, (3…) one further learning rate for
each size whose best is at the end of what was tried, (last) the `repeats`: more seeds where the best lies. A round is
decided only by the outcomes of finished rounds, so which trials exist never depends on which of them finished first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from batchlab.core.errors import InputError
from batchlab.search.repeats import Repeats, best_by_size
from batchlab.search.trial import Trial, TrialOutcome

NO_RATIO = 1.0

UNBOUNDED = 10**9
"""Runs where no bound is given."""


class GridSearch:
    """Batch × learning-rate grid that grows where a best is at its end; implements `protocols.Search`.

    `scale`: factor on the learning rates by batch size, 1 where it has none: a rule by which they follow it.

    A cell without a finite loss is worse than any with one. A size is extended by the grid's own ratio, at most
    `max_extensions` times, and never past a learning rate that has no finite loss. Undertrained sizes are run, but
    neither extended nor given more seeds while any other size has a finite loss.

    `max_runs` cuts the rounds of cells short; further seeds come on top. `total_runs` bounds all runs together. Of it,
    the further seeds of the best cell are reserved first (beyond one run per size): without them the noise is unknown
    and no size may be called better than another, while one more learning rate only refines the answer.
    """

    def __init__(
        self,
        global_batch_sizes: Sequence[int],
        learning_rates: Sequence[float],
        *,
        max_extensions: int = 3,
        seeds: int = 3,
        confirm: int = 0,
        first_seed: int = 0,
        max_runs: int | None = None,
        total_runs: int | None = None,
        scale: Mapping[int, float] | None = None,
    ) -> None:
        self.sizes = tuple(sorted(set(global_batch_sizes)))
        self.learning_rates = tuple(sorted(set(learning_rates)))
        if not self.sizes or not self.learning_rates:
            raise InputError("A sweep needs at least one batch size and one learning rate.")
        if self.sizes[0] < 1 or not all(math.isfinite(rate) and rate > 0 for rate in self.learning_rates):
            raise InputError("Batch sizes are whole numbers of at least 1, learning rates positive finite numbers.")
        self.max_extensions = max_extensions
        self.repeats = Repeats(seeds, confirm, first_seed)
        self.max_runs = max_runs
        self.total_runs = total_runs
        self.scale = scale or {}
        self.ratio = grid_ratio(self.learning_rates)
        self._outcomes: dict[Trial, TrialOutcome] = {}
        self._pending: tuple[Trial, ...] = ()
        self._extensions = dict.fromkeys(self.sizes, 0)
        self._stage = 0

    @property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """Everything told so far."""
        return dict(self._outcomes)

    @property
    def stopped(self) -> None:
        """None: a grid ends when its cells are run, and needs no reason."""

    def ask(self) -> tuple[Trial, ...]:
        """The next round; the same one again until it is told; empty when the search is over."""
        while not self._pending and self._stage < 3:
            self._pending = self._next_round()
        if not self._pending:
            self._pending = self.repeats.next(self._outcomes, self._runs_left())
        return self._pending

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for, in any order."""
        if set(proposals) != set(self._pending) or len(proposals) != len(outcomes):
            raise ValueError("tell() takes the outcomes of exactly the round that ask() returned")
        self._outcomes.update(zip(proposals, outcomes, strict=True))
        self._pending = ()

    def _next_round(self) -> tuple[Trial, ...]:
        if self._stage < 2:
            rates = self.learning_rates[self._stage :: 2]
            self._stage += 1
            return self._cut(
                [
                    Trial(size, self._scaled(rate, size), self.repeats.first_seed)
                    for rate in self._middle_first(rates)
                    for size in self.sizes
                ]
            )
        if self._stage == 2:
            grown = self._cut(self._extension_round())
            if grown:
                for trial in grown:
                    self._extensions[trial.global_batch_size] += 1
                return grown
        self._stage += 1
        return ()

    def _cut(self, trials: list[Trial]) -> tuple[Trial, ...]:
        return tuple(trials[: self._left()])

    def _left(self) -> int:
        """Cells that may still be tried: until the repeats begin, every run is one."""
        cells = UNBOUNDED if self.max_runs is None else self.max_runs - len(self._outcomes)
        if self.total_runs is not None:
            reserved = min(self.repeats.seeds - 1, max(0, self.total_runs - len(self.sizes)))
            cells = min(cells, self._runs_left() - reserved)
        return max(0, cells)

    def _runs_left(self) -> int:
        return UNBOUNDED if self.total_runs is None else max(0, self.total_runs - len(self._outcomes))

    def _middle_first(self, rates: Sequence[float]) -> list[float]:
        """So that a cut round still has every size near the middle of the grid."""
        middle = (math.log(self.learning_rates[0]) + math.log(self.learning_rates[-1])) / 2
        return sorted(rates, key=lambda rate: (round(abs(math.log(rate) - middle), 9), rate))

    def _extension_round(self) -> list[Trial]:
        """One learning rate beyond the end at which a size's best is; the sizes with the lowest loss first."""
        if len(self.learning_rates) == 1:
            return []  # one learning rate is a choice, not a grid: there is no ratio to extend it by
        trials = []
        for size, best in sorted(self._best_by_size().items(), key=lambda item: (item[1][0], item[0])):
            tried = sorted(trial.learning_rate for trial in self._outcomes if trial.global_batch_size == size)
            rate = best[1].learning_rate
            if self._extensions[size] >= self.max_extensions or rate not in (tried[0], tried[-1]):
                continue
            trials.append(Trial(size, self._beyond(rate == tried[-1], tried, size), self.repeats.first_seed))
        return trials

    def _scaled(self, rate: float, size: int) -> float:
        return float(f"{rate * self.scale[size]:.3g}") if self.scale.get(size, 1.0) != 1.0 else rate

    def _beyond(self, upwards: bool, tried: list[float], size: int) -> float:
        """The next value of the geometric grid past everything tried; without a rule the same ones for every size."""
        end = self._scaled(self.learning_rates[-1] if upwards else self.learning_rates[0], size)
        count = sum(rate > end if upwards else rate < end for rate in tried) + 1
        return float(f"{end * self.ratio ** (count if upwards else -count):.3g}")

    def _best_by_size(self) -> dict[int, tuple[float, Trial]]:
        return best_by_size(self._outcomes, self.repeats.first_seed)


def grid_ratio(learning_rates: Sequence[float]) -> float:
    """Mean factor between neighbouring learning rates; 1 for a single one."""
    if len(learning_rates) < 2:
        return NO_RATIO
    return float((learning_rates[-1] / learning_rates[0]) ** (1 / (len(learning_rates) - 1)))


def runs_expected(sizes: int, learning_rates: int, repeats: Repeats, warmups: int = 1) -> int:
    """Runs of a grid that needs no extension, at each of `warmups` warm-ups."""
    return sizes * learning_rates * warmups + repeats.runs(sizes, warmups)


def runs_at_most(sizes: int, learning_rates: int, repeats: Repeats, max_extensions: int, warmups: int = 1) -> int:
    """Runs of a grid that is extended wherever it may be."""
    extensions = sizes * max_extensions * warmups if learning_rates > 1 else 0
    return runs_expected(sizes, learning_rates, repeats, warmups) + extensions
