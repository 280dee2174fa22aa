"""The notes and headings of the tables on the critical batch size."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_loss
from batchlab.words.critical import format_source


def why_nothing(found: Findings) -> str:
    """Why there is nothing on the critical batch size."""
    if found.run_seconds is not None:
        return (
            "Every batch size was trained for the same time (--run-time), and the critical batch size is about equal "
            "tokens."
        )
    return "The sweep has no best batch size yet, and the critical batch size is measured from there."


LOSS_INCREASE = "loss above the unchanged batch (nats)"


def costs_note(findings: Findings) -> str:
    """To which loss, from what, and how time on several devices was computed."""
    critical = findings.critical
    if critical is None or critical.target is None:
        return ""
    note = f"To validation loss {format_loss(critical.target)}, {format_source(critical)}."
    if findings.devices > 1:
        note += (
            f" Each of the {findings.devices:,} devices takes an equal share of the batch, at the speed measured for "
            "the nearest size; communication between them is not included."
        )
    return note
