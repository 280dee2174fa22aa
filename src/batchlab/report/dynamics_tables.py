"""Tables of what happened in training: sizes at equal tokens, steps and hours; what went wrong, and what it took."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Comparison
from batchlab.core.format import NONE, format_count, format_hours, format_loss
from batchlab.core.record import Outcome
from batchlab.report.tables import Column, Row, Table
from batchlab.report.words import Words


def comparison_table(findings: Findings) -> Table:
    """Training loss of each batch size at the furthest tokens, steps and hours that all of them reach."""
    found = findings.diagnostics.comparisons
    words = Words.of(findings)
    columns = (Column("batch"), *(Column(f"train loss at {_at(one, words)}") for one in found))
    sizes = sorted({size for one in found for size, _ in one.losses})
    rows = []
    for size in sizes:
        values = [dict(one.losses).get(size) for one in found]
        rows.append(Row((f"{size:,}", *(format_loss(value) for value in values))))
    return Table(columns, tuple(rows))


def _at(one: Comparison, words: Words) -> str:
    if one.axis == "hours":
        return f"equal time ({format_hours(one.at)})"
    if one.axis == "steps":
        return f"equal steps ({one.at:,.0f})"
    return f"equal {words.units} ({format_count(one.at)})"


def stability_table(findings: Findings) -> Table:
    """One row per batch size over all of its runs: spikes, numbers that broke, divergence, and speed."""
    words = Words.of(findings)
    columns = (
        Column("batch"),
        Column("runs"),
        Column("with loss spikes"),
        Column("highest spike", number=False),
        Column("first NaN or infinity", number=False),
        Column("diverged"),
        Column(f"{words.units}/s while training"),
    )
    sizes = sorted({run.global_batch_size for run in findings.runs})
    return Table(columns, tuple(_stability(findings, size, words) for size in sizes))


def _stability(findings: Findings, size: int, words: Words) -> Row:
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
            f"+{format_loss(highest.height)} at step {highest.step:,} ({format_count(highest.tokens)} {words.units})"
            if highest
            else NONE,
            f"step {first.step:,}: {first.names[0]}" if first else NONE,
            f"{diverged:,}",
            f"{min(speeds):,.0f} to {max(speeds):,.0f}" if speeds else NONE,
        )
    )
