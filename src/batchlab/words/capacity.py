"""The largest micro-batch as a person reads it: the answer first, then where the bytes are, then what to do with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.capacity.capacity import CARD_HEADROOM, Capacity, MemoryVariant
from batchlab.core.format import format_bytes, format_duration, format_plural
from batchlab.core.record import PhasePeak
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.sharded import sharded_terms

Term = tuple[str, str]

INDENT = 13

ORDINARY_SIZES = 6
"""So many sizes run at most where memory that cannot be traced follows a line or a parabola (search/untraced.py)."""

_SHOWN = 0.05 * 2**20
"""Bytes that are not shown as 0.0 MiB."""

_STRAIGHT = 0.999
"""R² below which sizes do not lie on a line that is worth quoting."""

CARDS_ARE = f"predicted, {CARD_HEADROOM:.0%} left free; kernels of other devices differ"


def capacity_lines(found: Capacity) -> list[str]:
    """One labelled line per item; what is unknown is omitted or said to be missing."""
    terms = capacity_terms(found)
    if cards := _cards(found):
        terms.append(("cards", cards))
    lines = [f"{label:<{INDENT}}{text}" for label, text in terms]
    return [*lines, *variant_lines(found.variants), *(f"{'spent':<{INDENT}}{text}" for text in _spent(found))]


def capacity_terms(found: Capacity) -> list[Term]:
    """(label, text) of the answer, where the bytes are, and what to do with it."""
    terms = [
        ("FITS", _fits(found)),
        *_forked_only(found),
        *_too_slow(found),
        *_remedies(found),
        *sharded_terms(found),
        *_memory(found),
        *_budget(found),
        *_prediction(found),
    ]
    terms += _worst_batch(found)
    if found.max_micro_batch_size:
        terms += [("use", text) for text in _use(found)]
        terms += _layouts(found)
    return [*terms, *_loss(found)]


def _fits(found: Capacity) -> str:
    size = found.max_micro_batch_size
    limit = f" within {format_bytes(found.limit_bytes)}" if found.limit_bytes else ""
    if size is None:
        return f"nothing{limit}: {_least(found)}"
    if found.up_to is not None:
        sizes = f"{size:,}" if found.up_to == size else f"{size:,} to {found.up_to:,}"
        return f"micro-batch {sizes}{limit} ({_range(found)})"
    most = "; larger ones were not asked for" if found.status != "proved" and size >= found.searched_up_to else ""
    return f"micro-batch {size:,}{limit} ({_status(found)}{most})"


def _status(found: Capacity) -> str:
    """What the answer rests on."""
    if found.status == "predicted":
        return "predicted from traces; nothing was run"
    ran = "whole steps and an evaluation ran at this size in 1 new process"
    if found.status == "proved":
        return f"proved: {ran}, and one more sample failed in another"
    return f"verified: {ran}"


def _forked_only(found: Capacity) -> list[Term]:
    """The sizes at which a forked and a new process disagreed."""
    if not found.forked_only:
        return []
    sizes = ", ".join(f"{size:,}" for size in found.forked_only)
    text = f"{sizes} fit in a forked process but not in a new one, which decides; so the search went on below"
    return [("not verified", text)]


def _range(found: Capacity) -> str:
    """What a range of sizes rests on."""
    size = found.max_micro_batch_size or 0
    ran = (
        f"{size:,} ran on {found.draws} different batches, the largest by content among them, with "
        f"{format_bytes(found.margin_bytes)} to spare for others"
        if found.draws and found.points
        else f"{size:,} leaves {format_bytes(found.margin_bytes)} for what was not seen"
    )
    return f"memory depends on the values in a batch; {ran}"


def _too_slow(found: Capacity) -> list[Term]:
    slow = found.too_slow
    if slow is None:
        return []
    text = (
        f"about {slow.predicted:,} by prediction; not run, because its steps would take about "
        f"{format_duration(slow.seconds)} and samples are hardly faster above micro-batch {slow.knee:,}; "
        "--verify-largest runs it"
    )
    return [("larger", text)]


def _least(found: Capacity) -> str:
    ran = min((point.micro_batch_size for point in found.points if point.fits), default=None)
    if ran is not None and (found.smallest_failed is None or ran < found.smallest_failed):
        return f"micro-batch {ran:,} ran, but its memory rose from batch to batch, and other batches may not fit"
    needed = found.needed_bytes(1)
    if needed is None:
        return "even the smallest size ran out of memory"
    if found.budget_bytes is not None and needed <= found.budget_bytes:
        return f"one sample ran out of memory; its tensors alone need {format_bytes(needed)}"
    fixed = min(found.phases, key=lambda phase: phase.total_bytes, default=None)
    held = (
        ""
        if fixed is None
        else (
            f", of which parameters {format_bytes(fixed.parameter_bytes)}, gradients "
            f"{format_bytes(fixed.gradient_bytes)} and optimizer state {format_bytes(fixed.optimizer_bytes)} at any "
            "batch size"
        )
    )
    return f"one sample needs at least {format_bytes(needed)}{held}"


def _remedies(found: Capacity) -> list[Term]:
    """What would make one sample fit, where nothing does."""
    needed, limit, budget = found.needed_bytes(1), found.limit_bytes, found.budget_bytes
    if found.max_micro_batch_size is not None or needed is None or not limit or not budget:
        return []
    texts = [f"a limit above {format_bytes(max(needed, budget) * limit / budget)} (the same share left free)"]
    for remedy in sorted(found.remedies, key=lambda remedy: remedy.needed_bytes):
        if remedy.needed_bytes < needed:
            enough = "" if remedy.needed_bytes <= budget else ", still too much on its own"
            texts.append(f"{remedy.name}: {format_bytes(remedy.needed_bytes)} by its trace{enough}")
    texts.append("otherwise a smaller model, shorter samples, or an optimizer with less state, such as SGD")
    return [("would fit", text) for text in texts]


def _loss(found: Capacity) -> list[Term]:
    if all(point.finite_loss for point in found.points):
        return []
    return [("loss", "not finite where it ran: the sizes hold, but fix that before training")]


def _layouts(found: Capacity) -> list[Term]:
    """The layouts of the study's batch sizes, where any needs gradient accumulation."""
    split = [layout for layout in found.layouts if layout.grad_accum_steps > 1]
    texts = [f"{x.global_batch_size:,} = {x.micro_batch_size:,} × accum {x.grad_accum_steps:,}" for x in split]
    return [("layouts", " · ".join(texts))] if texts else []


def _memory(found: Capacity) -> list[Term]:
    phases, size = found.phases, found.max_micro_batch_size
    if not phases or size is None:
        return []
    top = max(phases, key=lambda phase: phase.total_bytes)
    needed = found.peak_bytes or found.needed_bytes(size)
    how = "measured" if found.peak_bytes is not None else "predicted"
    parts = [f"{name} {format_bytes(held)}" for name, held in split(top) if held >= _SHOWN]
    unseen = round((needed or 0) - top.total_bytes)
    if abs(unseen) >= 2**20:
        name = "not in the trace" if found.points else "reserved beyond what is in use"
        parts.append(f"{name} {format_bytes(unseen)}" if unseen > 0 else f"{format_bytes(-unseen)} less than traced")
    others = ", ".join(f"{phase.phase} {format_bytes(phase.total_bytes)}" for phase in phases if phase is not top)
    return [
        ("memory", f"{format_bytes(needed or 0)} at {size:,} ({how}): {' · '.join(parts)}"),
        ("peak in", f"the {top.phase} phase; {others}"),
    ]


def split(phase: PhasePeak) -> tuple[tuple[str, int], ...]:
    """The bytes of a phase's peak by category."""
    return (
        ("parameters", phase.parameter_bytes),
        ("gradients", phase.gradient_bytes),
        ("optimizer state", phase.optimizer_bytes),
        ("activations", phase.activation_bytes),
        ("temporaries", phase.temporary_bytes),
    )


def _budget(found: Capacity) -> list[Term]:
    lines = []
    if found.limit_bytes is not None and found.budget_bytes is not None:
        bound = describe_limit(found.limit_is)
        left = "" if found.left_bytes is None else f"; {format_bytes(found.left_bytes)} left at the largest size"
        lines.append(
            (
                "limit",
                f"{format_bytes(found.limit_bytes)}{bound} − headroom {format_bytes(found.headroom_bytes)} = "
                f"{format_bytes(found.budget_bytes)}{left}",
            )
        )
    line = found.line
    if line is not None and line.intercept >= 0 and line.r_squared >= _STRAIGHT and found.up_to is None:
        knee = f", from micro-batch {found.knee:,} up" if found.knee else ""
        lines.append(
            (
                "line",
                f"{format_bytes(line.intercept)} + {format_bytes(line.slope)} per sample{knee} "
                f"(R² {line.r_squared:.4f}, largest residual {format_bytes(line.largest_residual)}, "
                f"n = {line.n} {found.line_is} sizes)",
            )
        )
    return lines


def _worst_batch(found: Capacity) -> list[Term]:
    """Where samples differ in size, the answer for loaders that fill a batch by elements instead of by samples."""
    shapes = found.worst_batch
    if shapes is None or found.draws:  # drawn batches are not sorted by shape
        return []
    arrays = " and ".join("×".join(str(length) for length in shape) for shape in shapes)
    elements = " and ".join(f"{math.prod(shape):,}" for shape in shapes)
    return [("worst batch", f"the largest samples ran, arrays of {arrays}: a budget of {elements} elements per batch")]


def _prediction(found: Capacity) -> list[Term]:
    if found.untraceable:
        how = "Steps were run at small sizes instead." if found.traced else _by_running(found)
        return [("not traced", f"{found.untraceable} {how}")]
    curve, budget = found.curve, found.budget_bytes
    if curve is None or budget is None or not found.points:
        return []
    alone = curve.largest_within(budget, found.searched_up_to)
    unseen = found.unseen_bytes
    measured = "" if unseen is None else f"; {beside_trace(unseen)}"
    return [("trace alone", f"predicts {alone:,}{measured}{_not_reserved(found)}")]


def _not_reserved(found: Capacity) -> str:
    if not found.reserved or any(point.reserved_bytes is not None for point in found.traced):
        return ""
    return "; by bytes in use, because with expandable segments what the allocator reserves cannot be predicted"


def _by_running(found: Capacity) -> str:
    """How sizes were found without a trace, and why it took more of them than usual."""
    ran = sum(point.fits for point in found.points)
    if ran <= ORDINARY_SIZES:
        return "Sizes were found by running them."
    return (
        f"Sizes were found by running them, {ran:,} where up to {ORDINARY_SIZES} are usual: memory is flat at first, "
        "rises in steps or bends near the limit."
    )


def beside_trace(unseen_bytes: int) -> str:
    """What runs used beside what was traced."""
    compared = "more" if unseen_bytes >= 0 else "less"
    return f"runs used {format_bytes(abs(unseen_bytes))} {compared} than the trace"


def _use(found: Capacity) -> list[str]:
    size = found.max_micro_batch_size or 1
    texts = [f"maximum       {size:,}"]
    if found.conservative:
        free = ((found.limit_bytes or 0) - (found.needed_bytes(found.conservative) or 0)) if found.limit_bytes else 0
        texts.append(f"conservative  {found.conservative:,} ({format_bytes(free)} of the limit free)")
    if not found.splits_batches:
        texts.append("batches are not split, so this is also the largest global batch of one device")
    if half := found.accumulation:
        needed = found.needed_bytes(half)
        peak = f", about {format_bytes(needed)}" if needed else ""
        texts.append(f"accumulation  {half:,} × accum 2{peak}: the same step with about half the activations")
    shared = found.data_parallel
    if shared is not None and shared < size:
        texts.append(f"with DDP      {shared:,} per device, predicted: its buckets hold a copy of the gradients")
    if found.grad_accum_steps > 1:
        texts.append("all of these leave room for gradients that stay alive between the micro-batches of a step")
    texts.append("before a long run train 50 steps at this size: fragmentation and later allocations are not included")
    return texts


def _cards(found: Capacity) -> str:
    cards = found.cards
    if not cards or not found.traced:
        return ""
    sizes = " · ".join(f"{gib} GiB: {size:,}" if size else f"{gib} GiB: nothing" for gib, size in cards)
    return f"{sizes} ({CARDS_ARE})"


def variant_lines(variants: Sequence[MemoryVariant]) -> list[str]:
    """The memory variants, one line each."""
    if not variants:
        return []
    width = max(len(variant.name) for variant in variants)
    return [
        "variants: one memory optimization each",
        *(f"   {variant.name:<{width}}  {_variant(variant)}" for variant in variants),
    ]


def _variant(variant: MemoryVariant) -> str:
    if variant.why_not:
        return f"not possible: {variant.why_not}"
    size = f"{variant.max_micro_batch_size:>7,} ({variant.status})" if variant.max_micro_batch_size else "nothing fits"
    speed = (
        f"   {variant.tokens_per_second:,.0f} per second at {variant.measured_at:,}, measured"
        if variant.tokens_per_second is not None and variant.measured_at is not None
        else "   speed not measured"
    )
    return size + speed


def _spent(found: Capacity) -> list[str]:
    if not found.points:
        return []
    return [
        f"{format_plural(len(found.points), 'probe')}, {found.out_of_memory:,} out of memory, "
        f"{format_plural(found.steps, 'training step')}, {format_plural(len(found.traced), 'traced size')}"
    ]
