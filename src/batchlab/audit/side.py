"""A table of runs as one side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.audit.audit import Audit, Supported
from batchlab.analysis.audit.losses import cells_of
from batchlab.analysis.audit.table import Entry, Quantity
from batchlab.analysis.comparison import Side
from batchlab.analysis.sweep.loss_surface import best_cell
from batchlab.analysis.values import Cell, Run
from batchlab.audit.sweep import only_sweep
from batchlab.core.batch import BatchLayout
from batchlab.core.errors import quote
from batchlab.core.pairing import Pairing
from batchlab.core.record import Outcome

NO_RATE = 1.0
"""Learning rate of the cells of a table that has none."""


def side_of_table(audit: Audit, name: str) -> Side:
    """The runs of a table without errors that holds one sweep. Raises InputError where it is no such table."""
    group = only_sweep(audit, quote(name))
    cells = _cells(group)
    sizes = {cell.global_batch_size for cell in cells}
    bests = [best for size in sizes if (best := best_cell([c for c in cells if c.global_batch_size == size]))]
    tokens = _shared(group.entries, Quantity.TOKEN_BUDGET) or _shared(group.entries, Quantity.TOKENS)
    length = _shared(group.entries, Quantity.SEQUENCE_LENGTH)
    return Side(
        name=name,
        best=min(bests, key=lambda cell: (cell.quoted_loss or 0.0, cell.global_batch_size)),
        cells=tuple(cells),
        confirmation_seeds=frozenset(),
        unit=None,
        sequence_length=None if length is None else round(length),
        token_budget=None if tokens is None else round(tokens),
        run_seconds=None,
        held_out="",
        pairing=Pairing.NONE,
        slope=None,
        settings={},
    )


def _shared(entries: Sequence[Entry], quantity: Quantity) -> float | None:
    """The value that all rows which have one agree on."""
    values = {value for entry in entries if (value := entry.get(quantity)) is not None}
    return values.pop() if len(values) == 1 else None


def _cells(group: Supported) -> list[Cell]:
    cells = []
    for (size, rate), entries in cells_of(group.entries).items():
        runs = tuple(_run(entry, round(size), rate or NO_RATE, place) for place, entry in enumerate(entries))
        cells.append(Cell(round(size), rate or NO_RATE, runs))
    return cells


def _run(entry: Entry, size: int, rate: float, place: int) -> Run:
    length = entry.get(Quantity.SEQUENCE_LENGTH)
    return Run(
        run_id=f"line {entry.line}",
        layout=BatchLayout(
            global_batch_size=size, micro_batch_size=size, sequence_length=1 if length is None else round(length)
        ),
        learning_rate=rate,
        seed=round(entry.numbers.get(Quantity.SEED, place)),
        outcome=Outcome.COMPLETED,
        reason="",
        steps=round(entry.updates or 0),
        tokens=round(entry.tokens or 0),
        undertrained=False,
        val_loss=entry.loss,
        train_loss=entry.get(Quantity.TRAIN_LOSS),
        clipped_fraction=None,
        epochs=0.0,
        seconds=entry.get(Quantity.SECONDS) or 0.0,
        tokens_per_second=entry.get(Quantity.TOKENS_PER_SECOND),
        peak_bytes=None,
        pairing=Pairing.NONE,
    )
