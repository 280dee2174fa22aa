"""A run from a plan, in words: what was looked at before it, and what was predicted beside what came of it."""

from __future__ import annotations

from batchlab.core.batch import Unit
from batchlab.core.format import NONE, format_bytes, format_duration, format_layout, format_learning_rate, format_loss
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import TrainSpec


def run_line(spec: TrainSpec) -> str:
    """What will be trained."""
    return (
        f"{format_layout(spec.layout, spec.workload.unit)}, LR {format_learning_rate(spec.learning_rate)}, "
        f"{spec.steps:,} steps on {spec.device.name}, seed {spec.seed}"
    )


def preflight_line(name: str, status: str, found: str, expected: str) -> str:
    """One thing that was looked at before the run."""
    text = f"{status:<8} {name:<12} {found}".rstrip()
    match status, name:
        case "differs", "code":
            return f"{status:<8} {name:<12} the task was edited since the study, so its numbers may not hold"
        case "differs", _:
            return f"{text} (the study: {expected})"
        case "wrong", _ if expected:
            return f"{text} (needed: {expected})"
    return text


def outcome_lines(
    record: Record,
    unit: Unit,
    *,
    hours: float | None,
    peak_bytes: int | None,
    loss: tuple[float | None, float | None, float | None],
) -> list[str]:
    """Predicted and actual time, memory and loss, a line each. loss: the expected value, and its interval."""
    result = record.result
    if record.outcome is not Outcome.COMPLETED or not isinstance(result, TrainResult):
        return [f"{record.outcome.label}: {record.reason}"]
    value, low, high = loss
    interval = f" [{format_loss(low)}, {format_loss(high)}]" if low is not None and high is not None else ""
    speed = f"{result.tokens_per_second:,.0f} {unit.value}/s" if result.tokens_per_second else NONE
    resumed = f", continued {result.resumed} ×" if result.resumed else ""
    return [
        f"{'':8} {'predicted':<26} actual",
        f"{'time':8} {format_duration(hours * 3600) if hours is not None else NONE:<26} "
        f"{format_duration(result.seconds)} ({speed}{resumed})",
        f"{'memory':8} {format_bytes(peak_bytes) if peak_bytes else NONE:<26} "
        f"{format_bytes(result.peak_bytes) if result.peak_bytes else NONE}",
        f"{'val loss':8} {(format_loss(value) + interval) if value is not None else NONE:<26} "
        f"{format_loss(result.val_loss) if result.val_loss is not None else NONE}",
    ]
