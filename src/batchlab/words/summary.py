"""The five lines a study ends with: the answer, the doubt, the next step, always in this order."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_count, format_interval, format_layout, format_learning_rate, format_throughput
from batchlab.words.conclusions import format_good_set
from batchlab.words.critical import headline, measured
from batchlab.words.phrases import format_seeds
from batchlab.words.trust import unknown

INDENT = 12


def summary_lines(found: Findings, report_path: str, plan_path: str) -> list[str]:
    """Exactly five lines. What was not measured is said to be missing, never left out."""
    return [
        _line("TRAIN WITH", _train_with(found)),
        _line("as good", _tied(found)),
        _line("fits", _fits(found)),
        _line("not known", "; ".join(unknown(found)[:4])),
        f"open {report_path}" + (f" · {plan_path}" if found.recommended else " (no plan: there is no answer yet)"),
    ]


def _line(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}"


def _train_with(found: Findings) -> str:
    chosen = found.recommended
    if chosen is None:
        why = found.surface.cannot_tell if found.surface else "no training run has finished."
        return f"cannot tell: {why}"
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
        return "nothing could be compared"
    where = f"best {best.global_batch_size:,} at {format_learning_rate(best.best.learning_rate)}: {format_interval(best.val_loss)}"
    if surface.noise_sd is None:
        return f"not known: n = 1, noise was not measured ({where})"
    seeds = format_seeds(surface, best)
    only = len(surface.tied) == 1
    tuned = [len(row.cells) > 1 for row in surface.tied]
    how = "at its own best LR" if all(tuned) else "at the best LR tried" if any(tuned) else "at the only LR tried"
    text = f"batch {format_good_set(surface)}{' alone' if only else ', each'} {how} ({where}, {seeds})"
    chosen = found.recommended
    if chosen is not None and not only and any(row.tokens_per_second for row in surface.tied):
        text += f"; {chosen.layout.global_batch_size:,} is the fastest of them"
    return text


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
    said = headline(found)
    parts.append(
        f"critical batch: {said}" if said else f"critical batch not {'known' if measured(found) else 'measured'}"
    )
    return " · ".join(parts)
