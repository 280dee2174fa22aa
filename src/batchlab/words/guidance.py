"""What to do with the answer: a compromise for repeated runs, batches beyond the memory, sizes that are slow."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import ThroughputFinding
from batchlab.analysis.verdict import Shared
from batchlab.core.format import format_bytes, format_list, format_percent, format_plural
from batchlab.words.answers import predicted_cards
from batchlab.words.costs import describe_cost, shared_term
from batchlab.words.setup import Term


def guidance(found: Findings) -> tuple[Term, ...]:
    """(situation, sentences), each only where the study has measured what it rests on."""
    terms = (
        ("production", _production(found)),
        ("batches beyond the memory", _beyond_memory(found)),
        ("a size that is slow", _slow(found)),
    )
    return tuple((name, text) for name, text in terms if text)


def _production(found: Findings) -> str:
    """Of the sizes shown to cost at most the tolerance, the one that is fastest per token."""
    surface, chosen, speed = found.surface, found.recommended, found.throughput
    if surface is None or surface.best is None or chosen is None or speed is None or speed.fastest is None:
        return ""
    best, tolerance = surface.best.global_batch_size, format_percent(found.experiment.sweep.tolerance)
    size = chosen.layout.global_batch_size
    if best == size == speed.fastest:
        return f"Batch {size:,} has the lowest loss and the highest speed, so there is nothing to trade."
    of_fastest = _of_fastest(speed, size)
    here = f"Batch {size:,} is the compromise: {of_fastest} of the highest speed" if of_fastest else ""
    if not here:
        return ""
    if size == best:
        of = shared_term(Shared.by(found.experiment.budget.run_time_seconds), found.experiment.unit)
        return f"{here}, and the lowest loss; no faster size is shown to cost at most {tolerance} more {of}."
    cost = f", at {describe_cost(chosen.cost, found.experiment.unit)}" if chosen.cost else ""
    return f"{here}{cost}. The lowest loss is at batch {best:,}, the highest speed at {speed.fastest:,}."


def _of_fastest(speed: ThroughputFinding, size: int) -> str:
    top = speed.at(speed.fastest) if speed.fastest is not None else None
    here = speed.at(size)
    if top is None or here is None or top.tokens_per_second.value <= 0:
        return ""
    return format_percent(here.tokens_per_second.value / top.tokens_per_second.value)


def _beyond_memory(found: Findings) -> str:
    memory = found.memory
    if memory is None or memory.max_micro_batch_size is None:
        return ""
    largest = memory.max_micro_batch_size
    if memory.reached_the_end:
        return f"No limit was met: micro-batches up to {largest:,} fit, and no larger one was needed."
    parts = []
    if found.sample_independent:
        parts.append(
            f"Accumulate gradients: micro-batch {largest:,} × accum 2 is batch {2 * largest:,}, with the same gradient"
        )
        parts.append("on N devices a step has N times as many samples (batchlab plan STUDY --devices N)")
    else:
        parts.append("This model mixes the samples of a batch, so accumulation would change what is trained")
    parts += _variants(memory)
    if found.experiment.device.precision != "bf16" and found.experiment.command is None:
        parts.append("bf16 about halves the memory of activations (--precision bf16)")
    cards = [f"{size:,} on {gib} GiB" for gib, size in predicted_cards(found) if size > largest]
    if cards:
        parts.append(f"larger cards are predicted to hold {format_list(cards)}")
    return f"{'; '.join(parts)}."


def _variants(memory: Capacity) -> list[str]:
    gains = [
        f"{variant.name} {variant.max_micro_batch_size:,}"
        for variant in memory.variants
        if variant.max_micro_batch_size and variant.max_micro_batch_size > (memory.max_micro_batch_size or 0)
    ]
    return [f"memory optimizations raise the largest micro-batch: {format_list(gains)}"] if gains else []


def _slow(found: Findings) -> str:
    """Why a size is slower than a smaller one, by what was recorded of it."""
    speed, memory = found.throughput, found.memory
    if speed is None or not speed.falls_off:
        return ""
    texts = []
    for size in speed.falls_off:
        point = speed.at(size)
        if point is None:
            continue
        limit = memory.limit_bytes if memory else None
        if size in speed.disturbed:
            why = "other programs used the processor meanwhile, so measure it again"
        elif limit and point.peak_bytes and point.peak_bytes > 0.9 * limit:
            why = (
                f"its peak, {format_bytes(point.peak_bytes)}, is near the limit of {format_bytes(limit)}: suspect a "
                "fallback to host memory, or an allocator that frees and asks again"
            )
        else:
            why = "its peak is far below the limit, so memory is not the reason: suspect a slower kernel at this shape"
        texts.append(f"Batch {size:,} is more than 20 % slower than a smaller one; {why}")
    what = "Compilation and warm-up are not in these times"
    return f"{'. '.join(texts)}. {what} ({format_plural(len(speed.falls_off), 'size')})."
