"""The results chapter: status and remark of a batch size, and the note under the table of results."""

from __future__ import annotations

from collections import Counter

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Comparison, LossSpike
from batchlab.core.format import format_count, format_hours, format_list, format_loss, format_plural
from batchlab.core.record import Outcome
from batchlab.words.sweep import describe_row
from batchlab.words.units import Units


def banner(findings: Findings) -> str:
    """What stands over the report of an unfinished study; empty for a finished one."""
    if not findings.partial:
        return ""
    done = len(findings.runs)
    planned = f" of {findings.planned_runs:,} planned" if findings.planned_runs else ""
    finished = f"{done:,}{planned} training {'run is' if done == 1 and not planned else 'runs are'} done"
    return f"Partial: {finished}. Everything below is computed from these and may change."


NOT_RUN = "not run"


def remark(row: BatchRow) -> str:
    """What the numbers of the row do not show: an edge, too few steps, runs that did not finish."""
    if limits := describe_row(row):
        return limits
    ended = Counter(
        run.outcome.label for cell in row.cells for run in cell.runs if run.outcome is not Outcome.COMPLETED
    )
    return "; ".join(f"{format_plural(number, 'run')} {word}" for word, number in ended.items())


BEST_OF_EACH = "the best tried at each size"


def rates_note(shown: int, shared: int) -> str:
    """How to read the table of single learning rates, and which of them it shows where it does not show all."""
    text = (
        "Each number is how far a loss is above the lowest in the last row, on the seeds that all cells of its batch "
        "size share, so that a cell with more seeds has no advantage."
    )
    return f"{text} {shown} of {shared:,} shared learning rates, evenly spaced in number." if shown < shared else text


def results_note(findings: Findings) -> str:
    """How to read the table of results: intervals, ties, time."""
    surface, units = findings.surface, Units.of(findings)
    if not surface or not surface.rows:
        return ""
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    tuned = all(len(row.cells) > 1 for row in judged)
    at = "the best learning rate tried" if tuned else "the best learning rate tried, at some sizes the only one"
    parts = [f"Every size is judged at {at}. Steps are optimizer updates."]
    if surface.confirmation_seeds:
        parts.append(
            "The loss of a cell with confirmation seeds is their mean, here and wherever this report gives its loss."
        )
    if surface.resolved:
        parts.append(
            "Brackets are 95 % intervals from the spread between seeds, "
            f"n = {format_plural(surface.noise_seeds, 'run')} at repeated cells."
        )
    else:
        parts.append(
            "Noise was not measured (n = 1), so no intervals are given and no size is called better than another."
        )
    tied = sorted(row.global_batch_size for row in surface.tied)
    if len(tied) > 1:
        parts.append(f"The marked sizes, {format_list(tied)}, are statistically tied.")
    hours = [row.hours for row in surface.rows if row.hours is not None]
    if hours and findings.run_seconds is None:
        parts.append(
            f"Time is the budget divided by measured {units.name}/s: {format_hours(min(hours))} to "
            f"{format_hours(max(hours))}."
        )
    return " ".join(parts)


def equal_cost(comparison: Comparison, units: Units) -> str:
    """`equal steps (1,200)`: where training losses are compared."""
    match comparison.axis:
        case "hours":
            return f"equal time ({format_hours(comparison.at)})"
        case "steps":
            return f"equal steps ({comparison.at:,.0f})"
        case _:
            return f"equal {units.name} ({format_count(comparison.at)})"


def describe_spike(spike: LossSpike, units: Units) -> str:
    """`+2.979 at step 840 (215k tokens)`."""
    return f"+{format_loss(spike.height)} at step {spike.step:,} ({format_count(spike.tokens)} {units.name})"
