"""What the map of losses over batch size × learning rate says."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.values import Cell, Inferred, SurfaceFinding
from batchlab.core.format import format_learning_rate, format_loss, format_plural
from batchlab.core.record import Outcome

TITLE = "Batch size × learning rate"
BEST_OF_SIZE = "best LR of its batch size"
TIED = "statistically tied with the best cell"
INFERRED = "≈ not run, inferred from other cells"
NUMBERS = "Numbers are mean final validation losses"
COLOURS = (
    "Colours are mean final validation losses, the stronger the lower; the cells are too many for numbers, which are "
    "under the pointer and in the table of all cells"
)
FITTED = "fitted optimum"
UNDERTRAINED = "undertrained, not compared"


def surface_caption(surface: SurfaceFinding, capped_at: float | None, *, numbers: bool = True) -> str:
    """`capped_at`: the loss at which the colour scale ends, where that is not the
    highest. `numbers`: whether the cells are large enough to have them."""
    rows = surface.rows
    cells = [cell for row in rows for cell in row.cells]
    runs = sum(len(cell.runs) for cell in cells)
    text = f"{format_plural(len(cells), 'cell')}, n = {format_plural(runs, 'run')}. {NUMBERS if numbers else COLOURS}"
    if capped_at is not None:
        text += f". The colour scale ends at {format_loss(capped_at)}"
    if len(rows) * len({cell.learning_rate for cell in cells}) > len(cells):
        text += ". Blank combinations were not run"
    if surface.inferred:
        cells_marked = format_plural(len(surface.inferred), "paler cell")
        text += (
            f". {cells_marked} marked ≈ {'was' if len(surface.inferred) == 1 else 'were'} not run either; losses there "
            "are inferred from the other cells and used for no decision"
        )
    return f"{text}."


def describe_cell(global_batch_size: int, learning_rate: float, cell: Cell | None) -> tuple[str, ...]:
    """The lines over a cell: where it is, and how each of its runs ended."""
    where = f"batch {global_batch_size:,}, LR {format_learning_rate(learning_rate)}"
    if cell is None:
        return where, "not run"
    return (
        where,
        *(
            f"seed {run.seed}: {format_loss(run.val_loss)}"
            if run.outcome is Outcome.COMPLETED
            else f"seed {run.seed}: {run.outcome.label}. {run.reason[:120]}"
            for run in cell.runs
        ),
    )


def describe_inferred(cell: Inferred) -> tuple[str, ...]:
    return (
        *describe_cell(cell.global_batch_size, cell.learning_rate, None),
        f"inferred: {format_loss(cell.val_loss)} ± {cell.percent:.2g} %",
    )


def describe_fitted(learning_rates: Sequence[float]) -> list[str]:
    return [f"{FITTED}: LR {format_learning_rate(rate)}" for rate in learning_rates]
