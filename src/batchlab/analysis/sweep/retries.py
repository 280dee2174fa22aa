"""Cells that diverged and were tried again by rule, beside what became of the attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.values import Run
from batchlab.core.record import Outcome
from batchlab.search.retries import chain


@dataclass(frozen=True, slots=True)
class Retried:
    """A run that diverged, and the runs of other cells that were made because it did, in order."""

    diverged: Run
    attempts: tuple[Run, ...]

    @property
    def trained(self) -> Run | None:
        """The attempt that ended with a loss."""
        last = self.attempts[-1]
        return last if last.outcome is Outcome.COMPLETED else None


def retried_cells(
    runs: Sequence[Run], warmup_fractions: Sequence[float], attempts: int, first_seed: int
) -> tuple[Retried, ...]:
    """Every cell at one of the sweep's warm-ups whose run with the first seed diverged, if it was tried again."""
    first = {
        (run.global_batch_size, run.learning_rate, run.warmup_fraction): run for run in runs if run.seed == first_seed
    }
    found = []
    for (size, rate, warmup), run in first.items():
        if run.outcome is not Outcome.DIVERGED or warmup not in warmup_fractions:
            continue
        made: list[Run] = []
        for cell in chain(rate, warmup, attempts):
            again = first.get((size, *cell))
            if again is None or (made and made[-1].outcome is not Outcome.DIVERGED):
                break
            made.append(again)
        if made:
            found.append(Retried(run, tuple(made)))
    return tuple(found)
