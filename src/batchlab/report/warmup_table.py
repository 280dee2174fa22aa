"""The report's table of warm-ups, where several were tried."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.warmups import SizeWarmups, TriedWarmup
from batchlab.core.format import NONE, format_learning_rate, format_loss, format_percent
from batchlab.report.tables import Column, Mark, Row, Table
from batchlab.words.warmups import COMPARED, TRIED_AGAIN, format_change


def warmup_table(findings: Findings) -> Table:
    """Every warm-up of every batch size at its best learning rate; without rows where one was tried."""
    columns = (
        Column("batch"),
        Column("warm-up"),
        Column("best LR"),
        Column("val loss"),
        Column("above the best warm-up [95 %]"),
        Column("compared", number=False),
        Column("runs"),
    )
    sizes = findings.warmups.sizes if findings.warmups else ()
    asked = findings.experiment.warmup_fractions
    rows = (_row(size, tried, asked=tried.warmup_fraction in asked) for size in sizes for tried in size.tried)
    return Table(columns, tuple(rows))


def _row(size: SizeWarmups, tried: TriedWarmup, *, asked: bool) -> Row:
    """`asked` False: its cells were tried again because others diverged."""
    taken = tried.warmup_fraction == size.taken and tried.best is not None
    mark: Mark = "best" if taken else "" if tried.best is not None else "failed"
    compared = f"{COMPARED[tried.by]}, n = {tried.cost.n}" if tried.cost and tried.by else NONE
    texts = (
        f"{size.global_batch_size:,}",
        format_percent(tried.warmup_fraction),
        format_learning_rate(tried.best.learning_rate if tried.best else None),
        format_loss(tried.best.quoted_loss if tried.best else None),
        format_change(tried.cost) if tried.cost else "best" if taken else NONE,
        "undertrained" if tried.undertrained else compared if asked else f"{compared}{TRIED_AGAIN}",
        f"{sum(len(cell.runs) for cell in tried.cells):,}",
    )
    return Row(texts, mark)
