"""What the sweep would have said with one learning rate for every batch size, beside each size at its own best.

A single rate is what most published batch-size sweeps use. It was tuned for at most one of the sizes, so part of what
looks like an effect of batch size is the distance of each from its own best rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.sweep.noise import comparable_means
from batchlab.analysis.values import BatchRow, Cell, SurfaceFinding


@dataclass(frozen=True, slots=True)
class Comparison:
    """Loss at each batch size, and who is lowest. `learning_rate` None: each size at its own best."""

    learning_rate: float | None
    losses: tuple[tuple[int, float], ...]

    @property
    def lowest(self) -> int:
        """The batch size with the lowest loss; at a tie the smaller."""
        return min(self.losses, key=lambda item: (item[1], item[0]))[0]

    @property
    def spread(self) -> float:
        """Nats between the highest and the lowest."""
        values = [loss for _, loss in self.losses]
        return max(values) - min(values)


def compare_rates(surface: SurfaceFinding) -> tuple[Comparison, ...]:
    """One comparison per learning rate at which every judged size has a finite loss, then the one at own best rates.

    Losses are means over the seeds that all cells of a size share, so that a cell with more seeds has no advantage.
    Empty below two judged sizes, or where no rate is shared by all of them.
    """
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    if len(judged) < 2:
        return ()
    means = {row.global_batch_size: comparable_means(_finite(row)) for row in judged}
    shared = sorted(set.intersection(*(set(rates) for rates in means.values())))
    if not shared:
        return ()
    at_one = [Comparison(rate, tuple((size, rates[rate]) for size, rates in sorted(means.items()))) for rate in shared]
    own = Comparison(None, tuple((size, min(rates.values())) for size, rates in sorted(means.items())))
    return (*at_one, own)


def _finite(row: BatchRow) -> Sequence[Cell]:
    return [cell for cell in row.cells if cell.losses]
