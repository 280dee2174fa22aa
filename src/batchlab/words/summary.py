"""The lines a study ends with: the answer, its caveats, the next step, always in this order."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.verdict import NotTested, Unresolved, WithinTolerance
from batchlab.core.format import (
    format_interval,
    format_layout,
    format_learning_rate,
    format_loss,
    format_plural,
    format_throughput,
)
from batchlab.integrations.script.answer import answer_command
from batchlab.words.costs import describe_trade
from batchlab.words.evidence import held_out, tokens_per_parameter
from batchlab.words.phrases import format_seeds, format_warmup
from batchlab.words.reasons import describe_open, soonest_beside
from batchlab.words.sweep import no_answer
from batchlab.words.units import Units
from batchlab.words.unknown import unknown

INDENT = 12


def summary_lines(found: Findings, report_path: str, plan_path: str, *, written: bool = True) -> list[str]:
    """Exactly five lines. What was not measured is said to be missing, never omitted; `written`: so are documents."""
    plan = f" · {plan_path}" if found.recommended else " (no plan: there is no answer yet)"
    return [
        _line("TRAIN WITH", _train_with(found)),
        *_command(found),
        _line("costs", _costs(found)),
        _line("fits", _fits(found)),
        _line("unknown", "; ".join(unknown(found)[:4])),
        f"open {report_path}{plan}" if written else f"{report_path} is not up to date: see the warning above",
    ]


def _line(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}"


def _train_with(found: Findings) -> str:
    chosen = found.recommended
    if chosen is None:
        return f"cannot tell: {no_answer(found)}"
    layout = found.experiment.per_device(chosen.layout)
    text = (
        f"{format_layout(layout, found.experiment.unit)}, LR {format_learning_rate(chosen.learning_rate)}, "
        f"{format_warmup(found, chosen.warmup_tokens)}"
    )
    return text + (" (so far: the study is not finished)" if found.partial else "")


def _command(found: Findings) -> list[str]:
    """The command that trains with the answer, where the study ran a person's script."""
    chosen = found.recommended
    if chosen is None or not found.token_budget:
        return []
    command = answer_command(
        found.experiment, chosen.layout, chosen.learning_rate, found.token_budget, chosen.warmup_tokens
    )
    return [_line("command", command)] if command else []


def _costs(found: Findings) -> str:
    """What the recommended cell costs against the best one, or what would be sooner."""
    surface, chosen = found.surface, found.recommended
    best = surface.best if surface else None
    if surface is None or chosen is None or best is None or best.best is None or best.val_loss is None:
        return "unknown: no batch size was judged"
    unit, tuning = found.experiment.unit, "" if len(best.cells) > 1 else ", the only LR tried"
    rate = format_learning_rate(best.best.learning_rate)
    loss = f"{Units.of(found).named(format_interval(best.val_loss))}{_held_out(found)}"
    where = f"batch {best.global_batch_size:,} at {rate}{tuning}: {loss}"
    seeds = format_seeds(surface, best) if surface.noise_sd is not None else "n = 1"
    match chosen.reason:
        case NotTested(runs):
            return f"unknown: lowest of {format_plural(runs, 'run')}, not tested ({where})"
        case WithinTolerance() if chosen.cost is not None:
            text = f"{describe_trade(chosen.cost, unit)} than the best ({where}, {seeds})"
        case Unresolved(tolerance, other):
            text = f"nothing: it is the best ({where}, {seeds}); {describe_open(other, tolerance, unit)}"
        case _:
            text = f"nothing: it is the best ({where}, {seeds})"
    named = chosen.reason.other if isinstance(chosen.reason, Unresolved) else None
    return text + soonest_beside(found, named)


def _held_out(found: Findings) -> str:
    """The standard error of the held-out set beside the interval, where it is larger than what decides."""
    surface = found.surface
    if surface is None or surface.evaluation_sd is None or not held_out(found):
        return ""
    return f" ± {format_loss(surface.evaluation_sd)} by the held-out samples"


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
    if ratio := tokens_per_parameter(found):
        parts.append(ratio)
    return " · ".join(parts)
