"""The surface fitted to all runs: it chooses among cells that the runs alone do not tell apart, and is shown where no
run was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchlab.analysis.values import BatchRow, Cell, Inferred, Run
from batchlab.core.record import Outcome
from batchlab.search.inferred import infer
from batchlab.search.trial import Trial, TrialOutcome

FEWEST = 5
"""Cells with a finite loss from which on a surface is inferred."""

ROUNDING = 1e-6
"""Share of a loss below which a difference depends on the machine."""

TOO_UNCERTAIN = 5.0
"""Standard deviation in percent of the loss above which an inferred loss is not shown."""


@dataclass(frozen=True, slots=True)
class FittedSurface:
    """The surrogate's loss at every pair of a size and a learning rate of the study, run or not, with its standard
    deviation in percent of the loss. It is a mean over many possible surfaces, which smooths the noise of single runs.
    """

    at: Mapping[tuple[int, float], tuple[float, float]]

    def lowest(self, cells: Sequence[Cell]) -> Cell:
        """The first of the cells whose fitted loss is lowest, or differs from that by rounding only."""
        losses = [self.at[cell.global_batch_size, cell.learning_rate][0] for cell in cells]
        least = min(losses)
        return next(cell for cell, loss in zip(cells, losses, strict=True) if loss - least <= ROUNDING * abs(least))


def fitted_surface(cells: Sequence[Cell]) -> FittedSurface | None:
    """From all runs of these cells; None below `FEWEST` cells with a finite loss."""
    if sum(bool(cell.losses) for cell in cells) < FEWEST:
        return None
    runs = [run for cell in cells for run in cell.runs]
    sizes, rates = ({cell.global_batch_size for cell in cells}, {cell.learning_rate for cell in cells})
    pairs = [(size, rate) for size in sorted(sizes) for rate in sorted(rates)]
    losses, deviations = infer(_outcomes(runs), [size for size, _ in pairs], [rate for _, rate in pairs])
    return FittedSurface(dict(zip(pairs, zip(losses, deviations, strict=True), strict=True)))


def inferred_cells(rows: Sequence[BatchRow], fitted: FittedSurface | None) -> tuple[Inferred, ...]:
    """Every pair of a size and a learning rate that occur in the study without having been run together.

    Omitted: learning rates at and above a divergence of that size, sizes without a finite loss, and uncertain values.
    """
    if fitted is None:
        return ()
    rates = sorted({cell.learning_rate for row in rows for cell in row.cells})
    found = []
    for row in rows:
        tried = {cell.learning_rate for cell in row.cells}
        for rate in rates if row.best is not None else ():
            loss, deviation = fitted.at[row.global_batch_size, rate]
            if rate not in tried and rate < _diverged_from(row) and deviation <= TOO_UNCERTAIN:
                found.append(Inferred(row.global_batch_size, rate, loss, deviation))
    return tuple(found)


def _diverged_from(row: BatchRow) -> float:
    rates = [cell.learning_rate for cell in row.cells if any(run.outcome is Outcome.DIVERGED for run in cell.runs)]
    return min(rates, default=math.inf)


def _outcomes(runs: Sequence[Run]) -> dict[Trial, TrialOutcome]:
    return {
        Trial(run.global_batch_size, run.learning_rate, run.seed): TrialOutcome(
            run.val_loss if run.outcome is Outcome.COMPLETED else None,
            judged=not run.undertrained,
            why=None if run.outcome is Outcome.COMPLETED else run.outcome,
        )
        for run in runs
    }
