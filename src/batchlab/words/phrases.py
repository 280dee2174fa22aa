"""Phrases that several chapters share: sizes, seeds, cells, tests."""

from __future__ import annotations

from collections.abc import Sequence

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Cell, EnvironmentDifference, SurfaceFinding
from batchlab.core.format import format_count, format_learning_rate, format_list, format_percents, format_plural
from batchlab.core.pairing import Pairing


def format_span(rows: Sequence[BatchRow], all_rows: Sequence[BatchRow]) -> str:
    """`8–32` where the sizes are neighbours on the axis, else `8 and 32`."""
    sizes = sorted(row.global_batch_size for row in rows)
    axis = sorted(row.global_batch_size for row in all_rows)
    start = axis.index(sizes[0])
    if len(sizes) > 1 and axis[start : start + len(sizes)] == sizes:
        return f"{sizes[0]:,}–{sizes[-1]:,}"
    return format_list(sizes)


def format_tied(surface: SurfaceFinding) -> str:
    """`8–32`: the sizes statistically tied with the best."""
    return format_span(surface.tied, [row for row in surface.rows if row.val_loss is not None and not row.undertrained])


def format_warmup(found: Findings, tokens: float) -> str:
    """`warm-up 512k tokens`."""
    schedule = found.schedule
    if schedule.kind == "task" and not schedule.warmup_fraction:
        return "the script's own warm-up"
    text = f"warm-up {format_count(tokens)} {found.experiment.unit.value}"
    size = found.warmups.at(found.recommended.layout.global_batch_size) if found.warmups and found.recommended else None
    if size is None or len(size.tried) < 2 or (size.taken,) == found.experiment.warmup_fractions:
        return text  # or others were tried only with learning rates that had diverged
    return f"{text} (the best of {format_percents([each.warmup_fraction for each in size.tried])} tried)"


def format_seeds(surface: SurfaceFinding, row: BatchRow) -> str:
    """The seeds behind a row's quoted loss."""
    return format_seed_count(
        row.val_loss.n if row.val_loss else 0, bool(surface.confirmation_seeds) and row is surface.best
    )


def format_seed_count(n: int, confirmed: bool) -> str:
    """`3 seeds`, or `2 confirmation seeds` where the loss comes from seeds that had no part in the choice."""
    return format_plural(n, "confirmation seed" if confirmed else "seed")


def format_test(surface: SurfaceFinding) -> str:
    """How sizes were compared with the best."""
    if surface.paired_seeds:
        return f"one-sided t-test at 95 %, paired where both sizes have the same seeds, up to {surface.paired_seeds}"
    why = {
        Pairing.VERIFIED: "no two sizes share enough seeds",
        Pairing.DECLARED: "the order of the data is declared, not verified",
        Pairing.NONE: "the order of the data is unknown",
    }
    return f"one-sided t-test at 95 %, unpaired because {why[surface.pairing]}"


def format_differences(differences: Sequence[EnvironmentDifference]) -> list[str]:
    """`numpy: 2.0.0, 2.1.3`, one text per property."""
    return [f"{each.name.replace('_', ' ')}: {', '.join(each.values)}" for each in differences]


def format_cells(cells: Sequence[Cell]) -> str:
    """`batch 8 at 3.0e-3 and 6.0e-3, batch 16 at 6.0e-3`."""
    by_size: dict[int, list[str]] = {}
    for cell in cells:
        by_size.setdefault(cell.global_batch_size, []).append(format_learning_rate(cell.learning_rate))
    return ", ".join(f"batch {size:,} at {format_list(rates)}" for size, rates in sorted(by_size.items()))
