"""Curves as Unicode bars, for the report as text: losses during training, and diagnostic readings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.runs import first_runs
from batchlab.core.format import NONE, format_learning_rate, format_loss
from batchlab.report.tables import Column, Row, Table
from batchlab.words.units import Units

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None, width: int = 24) -> str:
    """Unicode bars between `low` and `high` (default: the values' own range); gaps where a value is not finite."""
    picked = list(values)
    if len(picked) > width:
        picked = [picked[round(i * (len(picked) - 1) / (width - 1))] for i in range(width)]
    finite = [v for v in picked if math.isfinite(v)]
    if not finite:
        return ""
    low = min(finite) if low is None else low
    high = max(finite) if high is None else high
    span = high - low

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return " "
        share = (min(max(value, low), high) - low) / span if span > 0 else 0.5
        return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]

    return "".join(bar(v) for v in picked)


@dataclass(frozen=True, slots=True)
class LossCurves:
    """One row per batch size, with bars between the losses `low` and `high`; no rows where nothing was evaluated."""

    table: Table
    low: float
    high: float


def loss_curves(findings: Findings) -> LossCurves:
    """Validation and training loss of one run per batch size, all on one scale."""
    curves = [
        (
            row,
            [loss for _, loss in run.val_curve],
            [r.train_loss for r in run.rows if r.train_loss is not None],
        )
        for row, run in first_runs(findings.surface)
    ]
    values = [value for _, validation, _ in curves for value in validation]
    if not values:
        return LossCurves(Table(()), math.nan, math.nan)
    low, high = min(values), max(values)
    columns = (
        Column("batch"),
        Column("LR"),
        Column(Units.of(findings).judged, number=False),
        Column("training loss", number=False),
        Column("last"),
    )
    rows = tuple(
        Row(
            (
                f"{row.global_batch_size:,}",
                format_learning_rate(row.best.learning_rate if row.best else None),
                sparkline(validation, low, high),
                sparkline(training, low, high),
                format_loss(validation[-1]) if validation else NONE,
            )
        )
        for row, validation, training in curves
    )
    return LossCurves(Table(columns, rows), low, high)


def readings_table(findings: Findings) -> Table:
    """First and last diagnostic reading of each quantity per batch size, with a sparkline between them."""
    columns = (
        Column("quantity", number=False),
        Column("of", number=False),
        Column("batch"),
        Column("first"),
        Column("in between", number=False),
        Column("last"),
    )
    rows = []
    for quantity, parts in findings.diagnostics.parts.items():
        if quantity == "seconds" or quantity.endswith("_uniform"):
            continue
        part = _representative(parts)
        for row, run in first_runs(findings.surface):
            name = f"{quantity}/{part}"
            values = [r.diagnostics[name] for r in run.rows if r.diagnostics and name in r.diagnostics]
            if values:
                ends = (f"{values[0]:.3g}", sparkline(values), f"{values[-1]:.3g}")
                rows.append(Row((quantity.replace("_", " "), part, f"{row.global_batch_size:,}", *ends)))
    return Table(columns, tuple(rows))


def _representative(parts: Sequence[str]) -> str:
    """The whole model where it was read, else its last layer, not a single head."""
    if "all" in parts:
        return "all"
    return next((part for part in reversed(parts) if "/head" not in part), parts[-1])
