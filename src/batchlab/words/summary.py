"""The lines a study ends with: the answer, its caveats, the next step, always in this order."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, SurfaceFinding
from batchlab.core.batch import Unit
from batchlab.core.format import format_count, format_interval, format_layout, format_learning_rate, format_throughput
from batchlab.words.critical import headline, measured
from batchlab.words.phrases import format_seeds, format_tied
from batchlab.words.sweep import no_answer
from batchlab.words.unknown import unknown

INDENT = 12


def summary_lines(found: Findings, report_path: str, plan_path: str) -> list[str]:
    """Exactly five lines. What was not measured is said to be missing, never omitted."""
    return [
        _line("TRAIN WITH", _train_with(found)),
        _line("tied", _tied(found)),
        _line("fits", _fits(found)),
        _line("unknown", "; ".join(unknown(found)[:4])),
        f"open {report_path}" + (f" · {plan_path}" if found.recommended else " (no plan: there is no answer yet)"),
    ]


def _line(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}"


def _train_with(found: Findings) -> str:
    chosen = found.recommended
    if chosen is None:
        return f"cannot tell: {no_answer(found)}"
    unit = found.experiment.unit
    text = (
        f"{format_layout(chosen.layout, unit)}, LR {format_learning_rate(chosen.learning_rate)}, "
        f"warm-up {format_count(chosen.warmup_tokens)} {unit.value}"
    )
    return text + (" (so far: the study is not finished)" if found.partial else "")


def _tied(found: Findings) -> str:
    surface = found.surface
    best = surface.best if surface else None
    if surface is None or best is None or best.best is None or best.val_loss is None:
        return "unknown: no batch size was judged"
    rate = format_learning_rate(best.best.learning_rate)
    where = f"batch {best.global_batch_size:,} at {rate}: {format_interval(best.val_loss)}"
    if surface.noise_sd is None:
        return f"unknown: n = 1, noise was not measured (lowest loss: {where})"
    best_is = f"best: {where}, {format_seeds(surface, best)}"
    if len(surface.tied) == 1:
        return f"batch {format_tied(surface)} alone, {_tuning(surface)} ({best_is})"
    return f"batch {format_tied(surface)}, each {_tuning(surface)} ({best_is}){_speed(found, best)}"


def _tuning(surface: SurfaceFinding) -> str:
    tuned = [len(row.cells) > 1 for row in surface.tied]
    return "at its own best LR" if all(tuned) else "at the best LR tried" if any(tuned) else "at the only LR tried"


def _speed(found: Findings, best: BatchRow) -> str:
    """How much faster the recommended size is than the one with the lowest loss."""
    chosen = found.recommended
    if chosen is None or found.surface is None:
        return ""
    speeds = {row.global_batch_size: row.tokens_per_second for row in found.surface.tied}
    here, there = speeds.get(chosen.layout.global_batch_size), best.tokens_per_second
    if here is None:
        return ""
    text = f"; {chosen.layout.global_batch_size:,} is the fastest"
    if chosen.layout.global_batch_size == best.global_batch_size or there is None:
        return text
    return f"{text}, {100 * (1 - there / here):.0f} % less time per {_item(found)} than {best.global_batch_size:,}"


def _item(found: Findings) -> str:
    return "token" if found.experiment.unit is Unit.TOKENS else "sample"


def _fits(found: Findings) -> str:
    parts = []
    memory, speed, unit = found.memory, found.throughput, found.experiment.unit
    if memory is None:
        parts.append("largest micro-batch not measured")
    elif memory.max_micro_batch_size is None:
        parts.append("no micro-batch fits")
    else:
        least = "at least " if memory.reached_the_end else ""
        parts.append(f"{least}{memory.max_micro_batch_size:,} ({memory.status})")
    size = found.recommended.layout.global_batch_size if found.recommended else speed.fastest if speed else None
    point = speed.at(size) if speed and size is not None else None
    if point is None or speed is None or size is None:
        parts.append("speed not measured")
    else:
        knee = f", knee at {speed.knee:,}" if speed.knee is not None else ""
        parts.append(f"{format_throughput(point.tokens_per_second.value, unit)} at {size:,}{knee}")
    if found.token_budget and found.task_info.parameter_count and unit is Unit.TOKENS:
        ratio = found.token_budget / found.task_info.parameter_count
        parts.append(f"{ratio:.2g} tokens per parameter")
    said = headline(found)
    missing = "unknown" if measured(found) else "not measured"
    parts.append(f"critical batch size: {said}" if said else f"critical batch size {missing}")
    return " · ".join(parts)
