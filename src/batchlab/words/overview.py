"""The report in prose: a summary before the numbers, a conclusion after them."""

from __future__ import annotations

from collections import Counter

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Run, SurfaceFinding
from batchlab.analysis.verdict import Cost, Unresolved
from batchlab.core.format import (
    format_interval,
    format_learning_rate,
    format_list,
    format_percent,
    format_plural,
    format_throughput,
)
from batchlab.core.record import Outcome
from batchlab.words.check import check_failed
from batchlab.words.costs import describe_arrival, describe_cost, describe_time
from batchlab.words.evidence import edge_of_axis
from batchlab.words.phrases import format_seeds, format_span, format_tied
from batchlab.words.run_length import run_length
from batchlab.words.setup import task_name
from batchlab.words.sweep import no_answer


def summary(found: Findings) -> tuple[str, ...]:
    """Paragraphs: what was run and how it ended, what came out, and how fast and how large a batch can be."""
    return tuple(text for text in (_what_was_run(found), _what_came_out(found), _on_the_device(found)) if text)


def conclusion(found: Findings) -> tuple[str, ...]:
    """Paragraphs: the decision, what smaller and larger batches would change, and what to do next."""
    return tuple(text for text in (_decision(found), _trade_off(found), _next_step(found)) if text)


def _what_was_run(found: Findings) -> str:
    if not found.runs:
        return check_failed(found.checks) or "No training run has finished yet."
    sizes = sorted({run.global_batch_size for run in found.runs})
    span = format_list(sizes) if len(sizes) <= 2 else f"{sizes[0]:,} to {sizes[-1]:,}"
    of = f" of {run_length(found)} each" if run_length(found) else ""
    text = (
        f"This study trained {task_name(found.experiment.task)} at batch {span}: "
        f"{format_plural(len(found.runs), 'run')}{of}{' so far' if found.partial else ''}"
    )
    ended = Counter(_ENDED.get(run.outcome, run.outcome.label) for run in found.runs if not _finished(run))
    if not ended:
        return f"{text}, all of which finished."
    others = "none finished" if ended.total() == len(found.runs) else "the others finished"
    return f"{text}. {format_list([f'{count:,} {label}' for label, count in ended.items()])}; {others}."


def _what_came_out(found: Findings) -> str:
    surface, best = found.surface, found.surface.best if found.surface else None
    if surface is None or best is None or best.best is None:
        return no_answer(found) if _some_finished(found) else ""  # that none did is said before
    rate = format_learning_rate(best.best.learning_rate)
    text = f"Batch {best.global_batch_size:,} at learning rate {rate} had the lowest validation loss"
    if surface.noise_sd is None:
        return f"{text}. No seed was repeated, so whether it is better than the others, or only luckier, is unknown."
    text += f", {format_interval(best.val_loss)} ({format_seeds(surface, best)})"
    tied = [row for row in surface.tied if row is not best]
    if not tied:
        return f"{text}; every other batch size is worse by more than noise."
    are = "is" if len(surface.tied) == 1 else "are"
    return f"{text}. Batch {format_tied(surface)} {are} statistically tied. {_towards_the_ends(surface, best)}".strip()


_ENDED = {Outcome.OUT_OF_MEMORY: "ran out of memory"}
"""How runs ended, where the label is no verb."""


def _finished(run: Run) -> bool:
    return run.outcome is Outcome.COMPLETED


def _some_finished(found: Findings) -> bool:
    return any(map(_finished, found.runs))


def _towards_the_ends(surface: SurfaceFinding, best: BatchRow) -> str:
    """Where the loss is higher by more than noise: at smaller batches, at larger ones, or both."""
    judged = [row for row in surface.rows if row.val_loss is not None and not row.undertrained]
    worse = [row for row in judged if not row.tied]
    smaller = [row for row in worse if row.global_batch_size < best.global_batch_size]
    larger = [row for row in worse if row.global_batch_size > best.global_batch_size]
    parts = []
    if smaller:
        parts.append(f"smaller batches ({format_span(smaller, judged)})")
    if larger:
        parts.append(f"larger ones ({format_span(larger, judged)})")
    return f"The loss is higher at {' and at '.join(parts)}." if parts else ""


def _on_the_device(found: Findings) -> str:
    speed, memory, unit = found.throughput, found.memory, found.experiment.unit
    parts = []
    top = speed.at(speed.fastest) if speed and speed.fastest is not None else None
    if top is not None and speed is not None:
        rate = top.tokens_per_second.value
        text = f"The fastest batch size is {speed.fastest:,}, at {format_throughput(rate, unit)}"
        chosen = found.recommended.layout.global_batch_size if found.recommended else None
        point = speed.at(chosen) if chosen is not None else None
        if point is not None and chosen != speed.fastest:
            text += f"; the recommended one has {format_percent(point.tokens_per_second.value / rate)} of that"
        parts.append(text)
    if memory is not None and memory.max_micro_batch_size is not None:
        least = "at least " if memory.reached_the_end else ""
        parts.append(f"Micro-batches of {least}{memory.max_micro_batch_size:,} fit in memory")
    return f"{'. '.join(parts)}." if parts else ""


def _decision(found: Findings) -> str:
    chosen, surface = found.recommended, found.surface
    if chosen is None or surface is None or surface.best is None:
        why = "No run finished." if found.runs and not _some_finished(found) else no_answer(found)
        return f"This study does not say what to train with. {why}"
    size, best = chosen.layout.global_batch_size, surface.best.global_batch_size
    rate = format_learning_rate(chosen.learning_rate)
    text = f"Train with batch {size:,} at learning rate {rate}"
    if surface.noise_sd is None:
        return f"{text}, provisionally: it had the lowest loss, and noise was not measured."
    if size != best:
        return f"{text}: batch {best:,} has the lowest loss, and this one is shown to be close and is sooner."
    return f"{text}: no other batch size is shown to be as good and sooner."


def _trade_off(found: Findings) -> str:
    """What the smallest and the largest judged size cost, in data and in time."""
    surface, best = found.surface, found.surface.best if found.surface else None
    if surface is None or best is None or surface.noise_sd is None:
        return ""
    others = [cost for cost in found.costs if cost.by is not None]
    if not others:
        return ""
    ends = sorted({min(others, key=_size).global_batch_size, max(others, key=_size).global_batch_size})
    costs = [cost for cost in sorted(others, key=_size) if cost.global_batch_size in ends]
    needs = {describe_cost(cost, found.experiment.unit) for cost in costs}
    if len(costs) > 1 and len(needs) == 1 and not any(map(describe_time, costs)):
        return f"Against batch {best.global_batch_size:,}, batch {format_list(ends)} cost {needs.pop()} each."
    texts = [_end(found, cost) for cost in costs]
    return f"Against batch {best.global_batch_size:,}, {'; '.join(texts)}."


def _size(cost: Cost) -> int:
    return cost.global_batch_size


def _end(found: Findings, cost: Cost) -> str:
    size, needs = f"batch {cost.global_batch_size:,}", describe_cost(cost, found.experiment.unit)
    arrival = describe_arrival(cost)
    return f"{size} {arrival}, with {needs}" if arrival else f"{size} costs {needs}"


def _next_step(found: Findings) -> str:
    """The one command or setting that would teach most."""
    surface, chosen = found.surface, found.recommended
    if not found.runs and check_failed(found.checks):
        return "Next: fix what the check names, and run the same command again."
    if found.partial:
        return "Next: run the same command again; it finishes the study."
    if surface is not None and not _some_finished(found):
        return "Next: try a remedy under Troubleshooting, in a new study."
    if surface is None or surface.best is None or chosen is None:
        return ""
    if surface.noise_sd is None:
        return "Next: repeat the best sizes with further seeds (--seeds 3), so that differences can be tested."
    if edge_of_axis(surface):
        judged = [row.global_batch_size for row in surface.rows if row.val_loss is not None and not row.undertrained]
        smaller = surface.best.global_batch_size == judged[0]
        beyond = "smaller" if smaller else "larger"
        without = [row.global_batch_size for row in surface.rows if row.global_batch_size not in judged]
        further = [size for size in without if (size < judged[0] if smaller else size > judged[-1])]
        if further:
            return (
                f"Next: see under Troubleshooting why batch {format_list(further)} gave no loss to judge, because the "
                "best size is next to them."
            )
        return f"Next: try {beyond} batch sizes (--batch-sizes), because the best is at the end of those tried."
    if isinstance(chosen.reason, Unresolved) and chosen.reason.other.more_seeds is not None:
        other = chosen.reason.other
        return (
            f"Next: {format_plural(other.more_seeds or 0, 'further seed')} at batch "
            f"{chosen.layout.global_batch_size:,} and {other.global_batch_size:,} would settle which to train with."
        )
    if found.critical is None or not found.critical.steps.estimates:
        return "Next: `batchlab critical STUDY --run` measures how far the batch can grow on more devices."
    return "Next: `batchlab plan STUDY --token-budget N` extrapolates the answer to a larger budget."
