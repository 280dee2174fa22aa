"""Tables of every run, and of the learning rates that are good at each batch size."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.lr_valley import lr_valleys
from batchlab.core.format import NONE, format_duration, format_learning_rate, format_loss
from batchlab.core.record import Outcome
from batchlab.report.tables import Column, Row, Table, cell_key


def runs_table(findings: Findings) -> Table:
    """One row per training run, in the order of results.csv, each with a link to its log."""
    columns = (
        Column("run", number=False),
        Column("batch"),
        Column("LR"),
        Column("seed"),
        Column("outcome", number=False),
        Column("final val loss"),
        Column("steps"),
        Column("wall time"),
    )
    runs = sorted(findings.runs, key=lambda run: (run.global_batch_size, run.learning_rate, run.seed, run.run_id))
    rows = (
        Row(
            (
                run.run_id,
                f"{run.global_batch_size:,}",
                format_learning_rate(run.learning_rate),
                f"{run.seed}",
                run.outcome.label,
                format_loss(run.val_loss),
                f"{run.steps:,}",
                format_duration(run.seconds),
            ),
            "" if run.outcome is Outcome.COMPLETED else "failed",
            cell_key(run.global_batch_size, run.learning_rate),
            f"runs/{run.run_id}/log.txt",
        )
        for run in runs
    )
    return Table(columns, tuple(rows))


def stable_rates_table(findings: Findings) -> Table:
    """The range of learning rates that cost at most the tolerance at each batch size; no rows where it is unknown."""
    columns = (Column("batch"), Column("from LR"), Column("to LR"), Column("doublings"), Column("95 % interval"))
    surface = findings.surface
    found = lr_valleys(surface, findings.slope, findings.experiment.sweep.tolerance) if surface else None
    rows = []
    for valley in found.valleys if found else ():
        width = valley.doublings
        low = NONE if width.low is None else f"{width.low:.2f}"
        high = "more" if width.high is None else f"{width.high:.2f}"
        rows.append(
            Row(
                (
                    f"{valley.global_batch_size:,}",
                    format_learning_rate(valley.low),
                    format_learning_rate(valley.high),
                    f"{width.value:.2f}",
                    f"{low} to {high}",
                )
            )
        )
    return Table(columns, tuple(rows))
