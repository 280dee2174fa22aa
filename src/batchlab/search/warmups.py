"""A search over batch size and learning rate at one warm-up after the other, then the repeats at the best of all.

Between the two, cells that diverged are tried again where that was asked for (search/retries.py).

The best learning rate depends on the warm-up: a longer one allows a higher one. So each warm-up has a search of its
own, and warm-ups are compared at the best learning rate of each. A later search may start where an earlier one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from batchlab.search.grid import UNBOUNDED
from batchlab.search.repeats import Repeats, best_by_size
from batchlab.search.retries import Retries
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.storage.decisions import SearchStop, StopReason


class CellSearch(Protocol):
    """A search over batch size and learning rate, which says why it ended where it has a reason."""

    @property
    def outcomes(self) -> Mapping[Trial, TrialOutcome]:
        """Everything told so far."""
        ...

    @property
    def stopped(self) -> SearchStop | None:
        """Why no further cell is tried."""
        ...

    def ask(self) -> tuple[Trial, ...]:
        """The next round; empty when the search is over."""
        ...

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for."""
        ...


Begin = Callable[[int, Trial | None], CellSearch]
"""A search of cells at one warm-up: of so many at most, with one seed; and the best cell of the earlier warm-ups, None
for the first one or where none has a finite loss."""


NONE = Retries()


class WarmupSearch:
    """Ask/tell search over several warm-ups; implements `protocols.Search`.

    `begin` makes the search at one warm-up. `max_runs`: cells at all warm-ups together; each gets an equal share of
    what is left. `total_runs`: all runs, of which the further seeds of the best cell are reserved first. `retries` of
    diverged cells come on top of `max_runs`. A cell that one of them trained is repeated only where it is its size's
    best one.
    """

    def __init__(
        self,
        warmup_fractions: Sequence[float],
        begin: Begin,
        repeats: Repeats,
        *,
        retries: Retries = NONE,
        max_runs: int | None = None,
        total_runs: int | None = None,
    ) -> None:
        self.warmup_fractions = tuple(sorted(set(warmup_fractions)))
        self.repeats = repeats
        self.retries = retries
        self.max_runs = max_runs
        self.total_runs = total_runs
        self._begin = begin
        self._searches: list[CellSearch] = []
        self._outcomes: dict[Trial, TrialOutcome] = {}
        self._pending: tuple[Trial, ...] = ()

    @property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """Everything told so far."""
        return dict(self._outcomes)

    @property
    def retried(self) -> frozenset[Trial]:
        """What was trained because another cell diverged, with all its seeds."""
        cells = self._tried_first()
        return frozenset(trial for trial in self._outcomes if replace(trial, seed=self.repeats.first_seed) not in cells)

    @property
    def stopped(self) -> SearchStop | None:
        """Why the searches ended: that one which ran out of runs, else the last; the runs are those of all."""
        stops = [search.stopped for search in self._searches if search.stopped is not None]
        if len(stops) < len(self.warmup_fractions):
            return None
        told = next((stop for stop in stops if stop.reason is StopReason.RUNS_SPENT), stops[-1])
        sums = {"runs": sum(stop.runs for stop in stops), "finite_runs": sum(stop.finite_runs for stop in stops)}
        return told.model_copy(update=sums)

    def ask(self) -> tuple[Trial, ...]:
        """The next round; the same one again until it is told; empty when the search is over."""
        if not self._pending:
            self._pending = self._cells() or self._again() or self.repeats.next(self._to_repeat(), self._runs_left())
        return self._pending

    def tell(self, proposals: Sequence[Trial], outcomes: Sequence[TrialOutcome]) -> None:
        """The outcomes of the whole round that was asked for, in any order."""
        if set(proposals) != set(self._pending) or len(proposals) != len(outcomes):
            raise ValueError("tell() takes the outcomes of exactly the round that ask() returned")
        told = dict(zip(proposals, outcomes, strict=True))
        if self._searches and self._searches[-1].ask():
            self._searches[-1].tell([_cell(trial) for trial in self._pending], [told[t] for t in self._pending])
        self._outcomes.update((trial, told[trial]) for trial in self._pending)
        self._pending = ()

    def _cells(self) -> tuple[Trial, ...]:
        """The next round of the present warm-up, or of the first one after it that asks for anything."""
        while True:
            trials = self._searches[-1].ask() if self._searches else ()
            if trials:
                warmup = self.warmup_fractions[len(self._searches) - 1]
                return tuple(replace(trial, warmup_fraction=warmup) for trial in trials)
            if len(self._searches) == len(self.warmup_fractions):
                return ()
            self._searches.append(self._begin(self._share(), self._best()))

    def _tried_first(self) -> set[Trial]:
        """The cells that the searches asked for, with the first seed."""
        return {
            replace(trial, seed=self.repeats.first_seed, warmup_fraction=warmup)
            for warmup, search in zip(self.warmup_fractions, self._searches, strict=False)
            for trial in search.outcomes
        }

    def _again(self) -> tuple[Trial, ...]:
        return self.retries.next(self._tried_first(), self._outcomes, self._runs_left() - self._reserved())

    def _to_repeat(self) -> dict[Trial, TrialOutcome]:
        """The outcomes among which the best cell and its rivals are: no retried cell but the best of its size."""
        best = {found[1] for found in best_by_size(self._outcomes, self.repeats.first_seed).values()}
        spared = {trial for trial in self.retried if replace(trial, seed=self.repeats.first_seed) not in best}
        return {trial: outcome for trial, outcome in self._outcomes.items() if trial not in spared}

    def _share(self) -> int:
        """Cells of the next warm-up: so far every run is one."""
        cells = UNBOUNDED if self.max_runs is None else self.max_runs - len(self._outcomes)
        if self.total_runs is not None:
            cells = min(cells, self._runs_left() - self._reserved())
        return max(0, cells) // (len(self.warmup_fractions) - len(self._searches))

    def _reserved(self) -> int:
        """Of `total_runs`, for further seeds of the best cell."""
        return 0 if self.total_runs is None else min(self.repeats.seeds - 1, max(0, self.total_runs - 1))

    def _runs_left(self) -> int:
        return UNBOUNDED if self.total_runs is None else max(0, self.total_runs - len(self._outcomes))

    def _best(self) -> Trial | None:
        found = best_by_size(self._outcomes, self.repeats.first_seed)
        return _cell(min(found.values())[1]) if found else None


def _cell(trial: Trial) -> Trial:
    """The trial as the search at its warm-up knows it."""
    return replace(trial, warmup_fraction=None)
