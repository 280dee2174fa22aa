"""The last rounds of every search: more seeds where the best lies, then confirmation seeds for the answer alone.

A cell is chosen by the first seed, so its loss there is lucky (the winner's curse: the lowest of k equally good cells
is about √(2·ln k) standard deviations too low). Further seeds measure the noise and decide between the best cell and
its neighbour; the quoted loss comes from confirmation seeds, which decided nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batchlab.search.trial import Trial, TrialOutcome

Losses = Mapping[Trial, TrialOutcome]
"""Outcomes of trials."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """`seeds` runs, the first included, at the best cell and its rivals; then `confirm` confirmation seeds.

    Rivals are the best cell of the better neighbouring batch size and, where the warm-up is an axis, the best cell of
    the same batch size at every other warm-up.
    """

    seeds: int = 3
    confirm: int = 0
    first_seed: int = 0

    @property
    def confirmation_seeds(self) -> range:
        """Seeds that have no part in choosing the best."""
        start = self.first_seed + self.seeds
        return range(start, start + self.confirm)

    def runs(self, sizes: int, warmups: int = 1) -> int:
        """All of them: at two cells where there are two batch sizes, and at one more for every further warm-up."""
        return (self.seeds - 1 + self.confirm) * (min(2, sizes) + warmups - 1)

    def next(self, outcomes: Losses, most: int) -> tuple[Trial, ...]:
        """The first round of repeats that is not among the outcomes, at most so many trials; empty after the last."""
        for trials in (self._more_seeds(outcomes), self._confirmation(outcomes)):
            if missing := [trial for trial in trials if trial not in outcomes]:
                return tuple(missing[: max(0, most)])
        return ()

    def _more_seeds(self, outcomes: Losses) -> list[Trial]:
        """Further seeds at the best cell and its rivals."""
        seeds = range(self.first_seed + 1, self.first_seed + self.seeds)
        return [replace(cell, seed=seed) for cell in self._contenders(outcomes) for seed in seeds]

    def _confirmation(self, outcomes: Losses) -> list[Trial]:
        """At all of them, the best by all seeds so far first. A rival is never spared: without seeds of its own that
        chose nothing it can be neither excluded nor shown to cost no more."""
        losses = {cell: self._losses(cell, outcomes) for cell in self._contenders(outcomes)}
        most = max(map(len, losses.values()), default=0)
        ranked = sorted(
            (cell for cell in losses if len(losses[cell]) == most), key=lambda cell: (_mean(losses[cell]), cell)
        )
        return [replace(cell, seed=seed) for cell in ranked for seed in self.confirmation_seeds]

    def _contenders(self, outcomes: Losses) -> list[Trial]:
        """The best cell and its rivals, as their trials with the first seed."""
        bests = best_by_size(outcomes, self.first_seed)
        if not bests:
            return []
        ordered = sorted(bests)
        size = min(bests, key=lambda s: (bests[s][0], s))
        place = ordered.index(size)
        neighbours = [ordered[i] for i in (place - 1, place + 1) if 0 <= i < len(ordered)]
        chosen = [size, *sorted(neighbours, key=lambda s: (bests[s][0], s))[:1]]
        return [*(bests[s][1] for s in chosen), *self._other_warmups(bests[size][1], outcomes)]

    def _other_warmups(self, best: Trial, outcomes: Losses) -> list[Trial]:
        others = {
            trial: outcome
            for trial, outcome in outcomes.items()
            if trial.global_batch_size == best.global_batch_size and trial.warmup_fraction != best.warmup_fraction
        }
        by_warmup: dict[float | None, dict[Trial, TrialOutcome]] = {}
        for trial, outcome in others.items():
            by_warmup.setdefault(trial.warmup_fraction, {})[trial] = outcome
        return [found[1] for slice_ in by_warmup.values() for found in best_by_size(slice_, self.first_seed).values()]

    def _losses(self, cell: Trial, outcomes: Losses) -> list[float]:
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        found = [outcomes.get(replace(cell, seed=seed)) for seed in seeds]
        return [outcome.val_loss for outcome in found if outcome and outcome.finite and outcome.val_loss is not None]


def best_by_size(outcomes: Losses, first_seed: int) -> dict[int, tuple[float, Trial]]:
    """Size → (loss, trial) of its best cell at the first seed; undertrained ones only when all are."""
    finite = {
        trial: (outcome.val_loss, trial)
        for trial, outcome in outcomes.items()
        if trial.seed == first_seed and outcome.val_loss is not None and math.isfinite(outcome.val_loss)
    }
    undertrained = {_length(trial) for trial, outcome in outcomes.items() if not outcome.judged}
    judged = {trial: found for trial, found in finite.items() if _length(trial) not in undertrained}
    bests: dict[int, tuple[float, Trial]] = {}
    for trial, found in (judged or finite).items():
        bests[trial.global_batch_size] = min(bests.get(trial.global_batch_size, found), found)
    return bests


def _length(trial: Trial) -> tuple[int, float | None]:
    """What decides whether a run has enough steps, and enough of them in its warm-up."""
    return trial.global_batch_size, trial.warmup_fraction


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.inf
