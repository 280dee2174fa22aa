"""What the plots of final losses say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow
from batchlab.core.format import format_interval, format_learning_rate, format_list, format_percent, format_plural
from batchlab.core.record import Outcome
from batchlab.words.sweep import describe_row
from batchlab.words.units import Units

NO_RUNS = "No training run has finished yet, so there is no loss to show."
DECISION = "Loss and training time against batch size"
LOSS_AXIS = "validation loss"
TIME = "training time"
RECOMMENDED = "recommended"


class Names(NamedTuple):
    """What a point means in the legend: by what noise says of its size, and whether its best LR is at the edge."""

    tied: str
    worse: str
    tied_at_edge: str
    worse_at_edge: str
    undertrained: str


_UNDERTRAINED = "undertrained"
WITH_NOISE = Names(
    tied="best or statistically tied",
    worse="worse than the best",
    tied_at_edge="tied, LR at the grid's edge",
    worse_at_edge="worse, LR at the grid's edge",
    undertrained=_UNDERTRAINED,
)
WITHOUT_NOISE = Names(
    tied="lowest loss",
    worse="higher loss",
    tied_at_edge="lowest, LR at the grid's edge",
    worse_at_edge="higher, LR at the grid's edge",
    undertrained=_UNDERTRAINED,
)
"""Where noise was not measured, nothing is called worse."""


def no_loss(findings: Findings) -> str:
    """Why no batch size has a loss."""
    ended = sorted({run.outcome.label for run in findings.runs if run.outcome is not Outcome.COMPLETED})
    if not ended:
        return NO_RUNS
    runs = format_plural(len(findings.runs), "training run")
    return f"None of {runs} has a final validation loss: {format_list(ended)}."


def describe_size(row: BatchRow) -> tuple[str, ...]:
    """The lines beside a point: size and learning rate, loss, number of runs, remark."""
    rate = format_learning_rate(row.best.learning_rate if row.best else None)
    runs = len(row.best.losses) if row.best else 0
    lines = (
        f"batch {row.global_batch_size:,} at LR {rate}",
        f"loss {format_interval(row.val_loss)}",
        format_plural(runs, "run"),
        describe_row(row),
    )
    return tuple(line for line in lines if line)


def tolerated(tolerance: float) -> str:
    """The legend's name of the band of losses that cost at most the tolerance."""
    return f"within the tolerance ({format_percent(tolerance)})"


def decision_caption(findings: Findings, rows: Sequence[BatchRow], *, tolerated: bool) -> str:
    """`tolerated`: the band of losses that cost at most the tolerance is drawn."""
    of = "time" if findings.run_seconds is not None else Units.of(findings).name
    text = f"Each point is the best learning rate tried at its size; {_intervals(findings, rows)}."
    if tolerated:
        text += f" In the shaded band the best loss would be reached with at most the tolerance in extra {of}."
    timed = [row for row in rows if row.hours is not None]
    if findings.run_seconds is not None:
        return f"{text} {AT_EQUAL_TIME}"
    if not timed:
        return f"{text} {no_speed(Units.of(findings))}"
    return f"{text} Time is the budget divided by each size's measured speed."


AT_EQUAL_TIME = "Every batch size was trained for the same time."


def no_speed(units: Units) -> str:
    return f"No trained batch size has a measured speed, so there are no {units.name}/s to divide by."


def time_axis(unit: str) -> str:
    """`time (s)`: short, because a phone has little room for it."""
    short = {"seconds": "s", "minutes": "min", "hours": "h"}[unit]
    return f"time ({short})"


def time_hover(unit: str) -> str:
    return f"batch %{{x:,}}: %{{y:.3g}} {unit} for the budget<extra></extra>"


def _intervals(findings: Findings, rows: Sequence[BatchRow]) -> str:
    surface = findings.surface
    runs = [row.val_loss.n for row in rows if row.val_loss]
    if not surface or not surface.resolved or max(runs, default=1) < 2:
        return "n = 1 run per point, so no intervals are shown"
    return f"bars are 95 % intervals, {_counts(rows)}"


def _counts(rows: Sequence[BatchRow]) -> str:
    """`n = 2 confirmation seeds of 5 runs at batch 8 and 16, 1 run elsewhere`."""
    shown = [row for row in rows if row.val_loss and row.best]
    confirmed = [row for row in shown if row.best and any(run.confirms for run in row.best.quoted_runs)]
    others = [row.val_loss.n for row in shown if row not in confirmed and row.val_loss]
    count = " to ".join(f"{n}" for n in sorted({min(others), max(others)})) if others else ""
    if not confirmed:
        return f"n = {count} runs per point"
    seeds = sorted({row.val_loss.n for row in confirmed if row.val_loss})
    runs = sorted({len(row.best.losses) for row in confirmed if row.best})
    where = format_list([row.global_batch_size for row in confirmed])
    text = f"n = {format_list(seeds)} confirmation seeds of {format_list(runs)} runs at batch {where}"
    return f"{text}, {count} {'run' if count == '1' else 'runs'} elsewhere" if others else text
