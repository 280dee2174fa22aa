"""The surface fitted to all runs: it chooses among cells that the runs alone do not tell apart, and is shown where no
run was."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.values import BatchRow, Cell, Inferred, Run
from batchlab.core.record import Outcome
from batchlab.search.inferred import infer
from batchlab.search.trial import Trial, TrialOutcome

FEWEST = 5
"""Cells with a finite loss from which on a surface is inferred."""

TOO_UNCERTAIN = 5.0
"""Standard deviation in percent of the loss above which an inferred loss is not shown."""


MOST = 128
"""Runs with a loss that a surface is inferred from. The cost grows with the cube of their number."""

SEEDS = 8
"""Runs of one cell that are used of it, so that one cell cannot take the place of all others."""


ROUNDING = 1e-6
"""Share of a loss below which a difference depends on the machine."""


def lowest_fitted(tied: Sequence[Cell], cells: Sequence[Cell]) -> Cell | None:
    """The first of the tied cells whose fitted loss is lowest, or differs from that by rounding only; None below
    `FEWEST` cells with a finite loss. The surface is a mean over many possible ones, so that it smooths the noise of
    single runs."""
    if sum(bool(cell.losses) for cell in cells) < FEWEST:
        return None
    wanted = [(cell.global_batch_size, cell.learning_rate) for cell in tied]
    others = [cell for cell in cells if not any(cell is one for one in tied)]
    losses, _ = infer(
        _outcomes(_nearest(tied, others, wanted)), [size for size, _ in wanted], [rate for _, rate in wanted]
    )
    least = min(losses)
    return next(cell for cell, loss in zip(tied, losses, strict=True) if loss - least <= ROUNDING * abs(least))


def inferred_cells(rows: Sequence[BatchRow]) -> tuple[Inferred, ...]:
    """Every pair of a size and a learning rate that occur in the study without having been run together.

    Omitted: learning rates at and above a divergence of that size, sizes without a finite loss, and uncertain values.
    """
    if sum(bool(cell.losses) for row in rows for cell in row.cells) < FEWEST:
        return ()
    runs = [run for row in rows for cell in row.cells for run in cell.runs]
    rates = sorted({run.learning_rate for run in runs})
    wanted = [
        (row.global_batch_size, rate)
        for row in rows
        if row.best is not None
        for rate in rates
        if rate not in {cell.learning_rate for cell in row.cells} and rate < _diverged_from(row)
    ]
    if not wanted:
        return ()
    best = [row.best for row in rows if row.best is not None]
    others = [cell for row in rows for cell in row.cells if cell is not row.best]
    losses, deviations = infer(
        _outcomes(_nearest(best, others, wanted)), [size for size, _ in wanted], [rate for _, rate in wanted]
    )
    return tuple(
        Inferred(size, rate, loss, deviation)
        for (size, rate), loss, deviation in zip(wanted, losses, deviations, strict=True)
        if deviation <= TOO_UNCERTAIN
    )


def _diverged_from(row: BatchRow) -> float:
    rates = [cell.learning_rate for cell in row.cells if any(run.outcome is Outcome.DIVERGED for run in cell.runs)]
    return min(rates, default=math.inf)


def _nearest(first: Sequence[Cell], others: Sequence[Cell], wanted: Sequence[tuple[int, float]]) -> list[Run]:
    """The runs to infer from: all that have no loss, and of the others those of the `first` cells, then of the cells
    nearest to one that is wanted. They are chosen by place, not by loss, which would bias what is inferred."""

    def distance(cell: Cell) -> float:
        return min(
            abs(math.log2(cell.global_batch_size / size)) + abs(math.log2(cell.learning_rate / rate))
            for size, rate in wanted
        )

    chosen: list[Run] = []
    finite = 0
    for cell in [*first, *sorted(others, key=distance)]:
        if finite < MOST or not cell.losses:
            chosen += cell.runs[:SEEDS]
            finite += len(cell.losses[:SEEDS])
    return chosen


def _outcomes(runs: Sequence[Run]) -> dict[Trial, TrialOutcome]:
    return {
        Trial(run.global_batch_size, run.learning_rate, run.seed): TrialOutcome(
            run.val_loss if run.outcome is Outcome.COMPLETED else None,
            judged=not run.undertrained,
            why=None if run.outcome is Outcome.COMPLETED else run.outcome,
        )
        for run in runs
    }
