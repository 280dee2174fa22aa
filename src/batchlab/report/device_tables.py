"""The report's tables of the device: measured speed, and every memory probe."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import NONE, format_bytes, format_loss, format_percent, format_split
from batchlab.report.tables import Column, Row, Table
from batchlab.words.capacity_reasons import probe_reason
from batchlab.words.units import Units


def speed_table(findings: Findings) -> Table:
    """Measured speed of every layout with its spread."""
    units = Units.of(findings)
    columns = (
        Column("batch"),
        Column("micro × accum"),
        Column(f"{units.name}/s"),
        Column("of the fastest"),
        Column("slowest to fastest block"),
        Column("blocks"),
        Column("seconds per step"),
        Column("MFU"),
        Column("warm-up"),
    )
    rows = []
    points = findings.throughput.points if findings.throughput else ()
    highest = max((point.tokens_per_second.value for point in points), default=0.0)
    for point in points:
        rate = point.tokens_per_second
        spread = NONE if rate.low is None or rate.high is None else f"{rate.low:,.0f} to {rate.high:,.0f}"
        rows.append(
            Row(
                (
                    f"{point.layout.global_batch_size:,}",
                    format_split(point.layout),
                    f"{rate.value:,.0f}",
                    format_percent(rate.value / highest),
                    spread,
                    f"{rate.n}",
                    f"{point.step_seconds:.3g}",
                    NONE if point.mfu is None else format_percent(point.mfu),
                    f"{point.warmup_seconds:.2g} s",
                )
            )
        )
    return Table(columns, tuple(rows))


def scaling_table(findings: Findings) -> Table:
    """Every batch that was measured on several devices."""
    units = Units.of(findings)
    columns = (
        Column("batch"),
        Column("devices"),
        Column("micro × accum"),
        Column(f"{units.name}/s"),
        Column("share alone"),
        Column("scaling efficiency"),
        Column("communication"),
    )
    rows = [
        Row(
            (
                f"{point.layout.global_batch_size:,}",
                f"{point.layout.data_parallel_size:,}",
                format_split(point.layout),
                f"{point.tokens_per_second.value:,.0f}",
                f"{point.alone.value:,.0f}",
                f"{100 * point.efficiency:.0f} %",
                f"{100 * max(0.0, 1 - point.efficiency):.0f} %",
            )
        )
        for point in (findings.throughput.scaling if findings.throughput else ())
    ]
    return Table(columns, tuple(rows))


def probes_table(findings: Findings) -> Table:
    """Every micro-batch size that was run to see whether it fits."""
    columns = (
        Column("micro-batch"),
        Column("outcome", number=False),
        Column("peak memory"),
        Column("loss of the last step"),
        Column("reason", number=False, wide=True),
    )
    points = sorted(findings.memory.points, key=lambda point: point.micro_batch_size) if findings.memory else ()
    rows = [
        Row(
            (
                f"{point.micro_batch_size:,}",
                "ran" if point.fits else "did not fit",
                format_bytes(point.peak_bytes) if point.peak_bytes else NONE,
                format_loss(point.train_loss) if point.finite_loss else "not finite",
                probe_reason(point),
            ),
            "" if point.fits else "failed",
        )
        for point in points
    ]
    return Table(columns, tuple(rows))
