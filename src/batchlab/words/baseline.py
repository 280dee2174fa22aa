"""Sentences about the baseline that a study trains first: what it is, whether it was reproduced, how fast it ran."""

from __future__ import annotations

from batchlab.analysis.sweep.baseline import BaselineFinding, Reproduction
from batchlab.core.batch import Unit
from batchlab.core.experiment import BaselineConfig
from batchlab.core.format import (
    format_interval,
    format_learning_rate,
    format_loss,
    format_percent,
    format_plural,
    format_throughput,
)
from batchlab.words.speed import describe_mfu

_COARSE = 3.0
"""Times the allowed share from which on the runs' own spread is named."""

IF_MISSED = {"stop": "stops there", "continue": "says so and goes on"}


def baseline_title(asked: BaselineConfig, runs: int) -> str:
    """The title of its runs."""
    return f"baseline: {format_plural(runs, 'run')} of {_place(asked)}, which should reach {format_loss(asked.loss)}"


def describe_baseline(found: BaselineFinding, unit: Unit) -> list[str]:
    """The verdict on the loss, then the speed beside what the device should reach; full sentences."""
    return [_loss(found), *_speed(found, unit)]


def why_stopped(found: BaselineFinding) -> str:
    """Why there is no sweep, and how to have one."""
    what = f"check data, model, tokens and schedule against {found.asked.source or 'its source'}"
    return (
        f"The baseline was not reproduced, so a sweep would compare batch sizes of another experiment: {what}. To "
        "sweep anyway, run the same command with --set baseline.if_missed=continue."
    )


def _place(asked: BaselineConfig) -> str:
    return f"batch {asked.batch_size:,} at LR {format_learning_rate(asked.learning_rate)}"


def _loss(found: BaselineFinding) -> str:
    asked = found.asked
    source = f" ({asked.source})" if asked.source else ""
    start = f"Baseline, {_place(asked)}{source}"
    if found.measured is None or found.off is None:
        return f"{start}: not reproduced, because no run of {found.runs} has a loss."
    measured = f"{format_interval(found.measured)} (n = {format_plural(found.measured.n, 'run')})"
    against = f"{measured}, expected {format_loss(asked.loss)}"
    within = format_percent(asked.within)
    if found.reproduced:
        text = f"{start}: reproduced, within {within} beyond its interval: {against}."
        if found.resolution is not None and found.resolution > _COARSE * asked.within:
            text += f" Its runs differ so much that a miss below {format_percent(found.resolution)} may go unseen."
        return text
    side = "higher" if found.verdict is Reproduction.HIGHER else "lower"
    off = format_percent(abs(found.off))
    return f"{start}: not reproduced: {against}, which is {off} {side}, more than {within} beyond the interval."


def _speed(found: BaselineFinding, unit: Unit) -> list[str]:
    point, expected = found.speed, found.asked.tokens_per_second
    if point is None:
        return []
    speed = point.tokens_per_second.value
    text = f"It trains at {format_throughput(speed, unit)}"
    if expected is not None:
        text += f", {format_percent(speed / expected)} of the {format_throughput(expected, unit)} expected"
    text += f"; {describe_mfu(point)}."
    if found.slow:
        text += " That is slower than expected: check device.precision and device.compile (`batchlab throughput TASK "
        text += "--variants`), and what else runs on the device."
    return [text]
