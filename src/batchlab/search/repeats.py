"""The last rounds of every search: more seeds where the best lies, then confirmation seeds for the answer alone.

A cell is chosen by the first seed, so its loss there is lucky (the winner's curse: the lowest of k equally good cells
is about √(2·ln k) standard deviations too low). Further seeds measure the noise and decide between the best cell and
its neighbour; the quoted loss comes from confirmation seeds, which decided nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchlab.search.trial import Trial, TrialOutcome


@dataclass(frozen=True, slots=True)
class Repeats:
    """`seeds` runs, the first included, at the best cell and its best neighbour; then `confirm` confirmation seeds."""

    seeds: int = 3
    confirm: int = 0
    first_seed: int = 0

    @property
    def confirmation_seeds(self) -> range:
        """Seeds that have no part in choosing the best."""
        start = self.first_seed + self.seeds
        return range(start, start + self.confirm)

    def runs(self, sizes: int) -> int:
        """All of them, at two cells where there are two batch sizes."""
        return (self.seeds - 1 + self.confirm) * min(2, sizes)

    def next(self, outcomes: Mapping[Trial, TrialOutcome], most: int) -> tuple[Trial, ...]:
        """The first round of repeats that is not among the outcomes, at most so many trials; empty after the last."""
        for trials in (self._more_seeds(outcomes), self._confirmation(outcomes)):
            if missing := [trial for trial in trials if trial not in outcomes]:
                return tuple(missing[: max(0, most)])
        return ()

    def _more_seeds(self, outcomes: Mapping[Trial, TrialOutcome]) -> list[Trial]:
        """Further seeds at the best cell and at the best cell of its better neighbouring size."""
        seeds = range(self.first_seed + 1, self.first_seed + self.seeds)
        return [Trial(size, rate, seed) for size, rate in self._contenders(outcomes) for seed in seeds]

    def _confirmation(self, outcomes: Mapping[Trial, TrialOutcome]) -> list[Trial]:
        """At both, the better by all seeds so far first. A rival is never spared: without seeds of its own that chose
        nothing it can be neither excluded nor shown to cost no more."""
        losses = {cell: self._losses(cell, outcomes) for cell in self._contenders(outcomes)}
        most = max(map(len, losses.values()), default=0)
        ranked = sorted(
            (cell for cell in losses if len(losses[cell]) == most), key=lambda cell: (_mean(losses[cell]), cell)
        )
        return [Trial(size, rate, seed) for size, rate in ranked for seed in self.confirmation_seeds]

    def _contenders(self, outcomes: Mapping[Trial, TrialOutcome]) -> list[tuple[int, float]]:
        bests = best_by_size(outcomes, self.first_seed)
        if not bests:
            return []
        ordered = sorted(bests)
        size = min(bests, key=lambda s: (bests[s][0], s))
        place = ordered.index(size)
        neighbours = [ordered[i] for i in (place - 1, place + 1) if 0 <= i < len(ordered)]
        chosen = [size, *sorted(neighbours, key=lambda s: (bests[s][0], s))[:1]]
        return [(s, bests[s][1]) for s in chosen]

    def _losses(self, cell: tuple[int, float], outcomes: Mapping[Trial, TrialOutcome]) -> list[float]:
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        found = [outcomes.get(Trial(*cell, seed)) for seed in seeds]
        return [outcome.val_loss for outcome in found if outcome and outcome.finite and outcome.val_loss is not None]


def best_by_size(outcomes: Mapping[Trial, TrialOutcome], first_seed: int) -> dict[int, tuple[float, float]]:
    """Size → (loss, learning rate) of its best cell at the first seed; undertrained sizes only when all are."""
    bests: dict[int, tuple[float, float]] = {}
    for trial, outcome in outcomes.items():
        if trial.seed == first_seed and outcome.val_loss is not None and math.isfinite(outcome.val_loss):
            cell = (outcome.val_loss, trial.learning_rate)
            bests[trial.global_batch_size] = min(bests.get(trial.global_batch_size, cell), cell)
    undertrained = {trial.global_batch_size for trial, outcome in outcomes.items() if not outcome.judged}
    judged = {size: cell for size, cell in bests.items() if size not in undertrained}
    return judged or bests


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.inf
