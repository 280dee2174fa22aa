"""Diverged cells tried again by rule: half the learning rate and twice the warm-up, each time.

Where training diverges, guides advise a lower learning rate or a longer warm-up. Both are done together, because either
alone is what the sweep varies anyway. What is trained is another cell, with a record of its own: the cell that diverged
stays diverged, and the new one is judged at the warm-up that it had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from batchlab.core.parse import LEAST_RATE
from batchlab.core.record import Outcome
from batchlab.search.trial import Trial, TrialOutcome

LOWER, LONGER = 2.0, 2.0
"""What the learning rate is divided by and the warm-up multiplied by."""

FIRST_WARMUP = 0.02
"""Share of a run in which the learning rate rises at the first retry of a cell that had no warm-up."""

LONGEST_WARMUP = 0.5
"""No retry warms up for longer than this share, unless the cell did already."""


def retry_of(learning_rate: float, warmup_fraction: float) -> tuple[float, float] | None:
    """The (learning rate, warm-up) at which a cell is tried again; None where no lower learning rate is allowed.

    Learning rates are rounded to three digits, as those of a grid that is extended.
    """
    lower = float(f"{learning_rate / LOWER:.3g}")
    longer = min(LONGER * warmup_fraction, LONGEST_WARMUP) if warmup_fraction else FIRST_WARMUP
    return (lower, max(longer, warmup_fraction)) if lower >= LEAST_RATE else None


def chain(learning_rate: float, warmup_fraction: float, attempts: int) -> Iterator[tuple[float, float]]:
    """The cells that one is tried again at, in order, as long as each of them diverges."""
    for _ in range(attempts):
        found = retry_of(learning_rate, warmup_fraction)
        if found is None:
            return
        learning_rate, warmup_fraction = found
        yield found


@dataclass(frozen=True, slots=True)
class Retries:
    """`attempts` for every cell whose run with the first seed diverged; 0: none."""

    attempts: int = 0

    def next(self, cells: Collection[Trial], outcomes: Mapping[Trial, TrialOutcome], most: int) -> tuple[Trial, ...]:
        """The next round: of every one of `cells` that diverged, the first attempt without an outcome, unless an
        earlier one did not diverge. At most so many trials; every cell has its warm-up."""
        asked = (self._attempt(cell, outcomes) for cell in sorted(cells))
        return tuple(dict.fromkeys(trial for trial in asked if trial is not None))[: max(0, most)]

    def _attempt(self, cell: Trial, outcomes: Mapping[Trial, TrialOutcome]) -> Trial | None:
        if cell.warmup_fraction is None or outcomes[cell].why is not Outcome.DIVERGED:
            return None
        for rate, warmup in chain(cell.learning_rate, cell.warmup_fraction, self.attempts):
            trial = replace(cell, learning_rate=rate, warmup_fraction=warmup)
            if trial not in outcomes:
                return trial
            if outcomes[trial].why is not Outcome.DIVERGED:
                return None
        return None
