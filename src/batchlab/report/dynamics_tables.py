"""Tables of training dynamics: sizes at equal tokens, steps and hours; spikes, divergence and speed of each size."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import NONE, format_loss
from batchlab.core.record import Outcome
from batchlab.report.tables import Column, Row, Table
from batchlab.words.results import describe_spike, equal_cost
from batchlab.words.units import Units


def comparison_table(findings: Findings) -> Table:
    """Training loss of each batch size at the furthest tokens, steps and hours that all of them reach."""
    found = findings.diagnostics.comparisons
    units = Units.of(findings)
    columns = (Column("batch"), *(Column(f"train loss at {equal_cost(one, units)}") for one in found))
    sizes = sorted({size for one in found for size, _ in one.losses})
    rows = []
    for size in sizes:
        values = [dict(one.losses).get(size) for one in found]
        rows.append(Row((f"{size:,}", *(format_loss(value) for value in values))))
    return Table(columns, tuple(rows))


def stability_table(findings: Findings) -> Table:
    """One row per batch size over all of its runs: spikes, non-finite values, divergence, and speed."""
    units = Units.of(findings)
    columns = (
        Column("batch"),
        Column("runs"),
        Column("with loss spikes"),
        Column("highest spike", number=False),
        Column("first NaN or infinity", number=False),
        Column("diverged"),
        Column(f"{units.name}/s while training"),
    )
    sizes = sorted({run.global_batch_size for run in findings.runs})
    return Table(columns, tuple(_stability(findings, size, units) for size in sizes))


def _stability(findings: Findings, size: int, units: Units) -> Row:
    runs = {run.run_id: run for run in findings.runs if run.global_batch_size == size}
    spikes = [spike for spike in findings.diagnostics.spikes if spike.run_id in runs]
    broken = [event for event in findings.diagnostics.events if event.run_id in runs and event.what == "not finite"]
    highest = max(spikes, key=lambda spike: spike.height, default=None)
    first = min(broken, key=lambda event: event.tokens, default=None)
    diverged = sum(run.outcome is Outcome.DIVERGED for run in runs.values())
    speeds = [run.tokens_per_second for run in runs.values() if run.tokens_per_second]
    return Row(
        (
            f"{size:,}",
            f"{len(runs):,}",
            f"{len({spike.run_id for spike in spikes}):,}",
            describe_spike(highest, units) if highest else NONE,
            f"step {first.step:,}: {first.names[0]}" if first else NONE,
            f"{diverged:,}",
            f"{min(speeds):,.0f} to {max(speeds):,.0f}" if speeds else NONE,
        )
    )
