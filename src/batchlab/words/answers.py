"""The questions that the sections of a report answer, each with its answer, caveat and evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from batchlab.analysis.capacity.capacity import CARD_HEADROOM, Capacity
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import NoFiniteLoss
from batchlab.core.format import (
    format_bytes,
    format_interval,
    format_learning_rate,
    format_list,
    format_plural,
    format_throughput,
)
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.critical import headline, measured
from batchlab.words.phrases import format_seeds, format_tied
from batchlab.words.speed import describe_mfu, launch_bound
from batchlab.words.sweep import describe_row, no_answer
from batchlab.words.units import Units

NOT_MEASURED = "not measured in this study"
CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, as a heading, and what stands under it."""

    question: str
    answer: str
    caveat: str
    evidence: str


class Answers(NamedTuple):
    """The questions of a study, in order. What to train with, and whether to trust it, stand above all of them."""

    micro_batch: Answer
    other_cards: Answer
    fastest: Answer
    quality: Answer
    scale: Answer


def answers(found: Findings) -> Answers:
    """Every question with its answer. What was not measured is said to be so."""
    return Answers(
        micro_batch=_micro_batch(found),
        other_cards=_other_cards(found),
        fastest=_fastest(found),
        quality=_quality(found),
        scale=_scale(found),
    )


def _micro_batch(found: Findings) -> Answer:
    question, memory = "How large a micro-batch fits?", found.memory
    if memory is None:
        return Answer(question, NOT_MEASURED, "no size was probed", "")
    probes = f"{format_plural(len(memory.points), 'size')} probed with whole steps, each in a process of its own"
    if memory.max_micro_batch_size is None:
        why = "ran out of memory" if memory.points else "needs more memory by its trace"
        return Answer(question, "none", f"even the smallest size tried {why}", probes)
    return Answer(question, _largest(memory, memory.max_micro_batch_size), _capacity_caveat(memory), probes)


def _largest(memory: Capacity, largest: int) -> str:
    if memory.status == "proved":
        return f"{largest:,} (proved: {largest + 1:,} ran out of memory)"
    if memory.smallest_failed is not None:
        return f"{largest:,} (verified; {memory.smallest_failed:,} ran out of memory)"
    return f"at least {largest:,} (verified)" if memory.reached_the_end else f"{largest:,} ({memory.status})"


def _capacity_caveat(memory: Capacity) -> str:
    parts, largest = [], memory.max_micro_batch_size or 0
    if memory.smallest_failed is None and not memory.reached_the_end:
        parts.append(f"{largest + 1:,} is predicted to leave less than the headroom free and was not run")
    elif memory.smallest_failed is None:
        parts.append("larger sizes were not needed and not tried")
    elif memory.smallest_failed > largest + 1:
        parts.append(f"sizes from {largest + 1:,} to {memory.smallest_failed - 1:,} were not tried")
    if memory.left_bytes is not None and memory.limit_bytes is not None:
        bound = describe_limit(memory.limit_is)
        parts.append(f"{format_bytes(memory.left_bytes)} of {format_bytes(memory.limit_bytes)}{bound} left free")
    return "; ".join(parts)


def predicted_cards(found: Findings) -> tuple[tuple[int, int], ...]:
    """(GiB, largest micro-batch) of cards that a trace answers for; empty without one."""
    return found.memory.cards if found.memory is not None and found.memory.traced else ()


def _other_cards(found: Findings) -> Answer:
    question, cards, memory = "How large on a card I don't have?", predicted_cards(found), found.memory
    if memory is None or not cards:
        return Answer(
            question,
            NOT_MEASURED,
            "no card's size lies among the traced ones; ask with `batchlab capacity --predict 80GiB`",
            "",
        )
    sizes = " · ".join(f"{gib} GiB: {size:,}" if size else f"{gib} GiB: none" for gib, size in cards)
    caveat = f"predicted with {CARD_HEADROOM:.0%} left free; other devices run other kernels".replace("%", " %")
    evidence = f"memory traced at {format_plural(len(memory.traced), 'size')}"
    if (unseen := memory.unseen_bytes) is not None:
        used = (
            f"{format_bytes(abs(unseen))} {'more' if unseen > 0 else 'less'} than"
            if abs(unseen) >= 2**20
            else "as much as"
        )
        evidence += f"; runs here used {used} traced"
    return Answer(question, sizes, caveat, evidence)


def _fastest(found: Findings) -> Answer:
    question, speed, unit = "What is the fastest batch size?", found.throughput, found.experiment.unit
    top = speed.at(speed.fastest) if speed and speed.fastest is not None else None
    if speed is None or top is None:
        return Answer(question, NOT_MEASURED, "no speed was measured", "")
    answer = f"{speed.fastest:,}: {format_throughput(top.tokens_per_second.value, unit)}"
    if speed.knee is not None and speed.knee != speed.fastest:
        answer += f"; {speed.knee:,} is within 10 % of it"
    caveats = []
    if speed.fastest == speed.points[-1].layout.global_batch_size:
        caveats.append("it is the largest size measured")
    if speed.disturbed:
        caveats.append(f"other programs used the device at batch {format_list(speed.disturbed)}")
    if unsettled := [point.layout.global_batch_size for point in speed.points if point.stable is False]:
        caveats.append(f"the speed of batch {format_list(unsettled)} had not settled")
    if bound := [point.layout.global_batch_size for point in speed.points if point.launch_bound]:
        caveats.append(launch_bound(bound))
    if speed.falls_off:
        caveats.append(f"batch {format_list(speed.falls_off)} is slower than a smaller one")
    return Answer(
        question,
        answer,
        "; ".join([*caveats, *([describe_mfu(top)] if top.mfu is not None else [])]),
        f"{format_plural(len(speed.points), 'size')}, each alone on the device after warm-up, median of "
        f"{top.tokens_per_second.n} blocks",
    )


def _quality(found: Findings) -> Answer:
    question, surface = "Which batch size and learning rate give the lowest loss?", found.surface
    if surface is None:
        return Answer(question, CANNOT_TELL, "no training run has finished", "")
    runs = format_plural(len(found.runs), "run")
    best = surface.best
    if best is None or best.best is None or best.val_loss is None:
        why = "no run has a finite loss" if isinstance(surface.no_best, NoFiniteLoss) else no_answer(found)
        return Answer(question, CANNOT_TELL, why, runs)
    rate = format_learning_rate(best.best.learning_rate)
    loss = Units.of(found).named(format_interval(best.val_loss))
    answer = f"batch {best.global_batch_size:,} at LR {rate}: {loss}"
    if surface.noise_sd is None:
        caveats = ["n = 1: the lowest loss seen, not a winner, because noise was not measured"]
    else:
        answer += f"; statistically tied: {format_tied(surface)}" if len(surface.tied) > 1 else ""
        caveats = [f"n = {format_seeds(surface, best)}, {surface.noise_df} degrees of freedom"]
        single = [row.global_batch_size for row in surface.tied if row.val_loss and row.val_loss.n == 1]
        caveats += [f"n = 1 at batch {format_list(single)}"] if single else []
    caveats += [limits] if (limits := describe_row(best)) else []
    caveats += ["the study is not finished"] if found.partial else []
    sizes = format_plural(len(surface.rows), "batch size")
    return Answer(question, answer, "; ".join(caveats), f"{runs} over {sizes}, each judged at the best LR tried")


def _scale(found: Findings) -> Answer:
    question = f"How far can I scale before I waste {found.experiment.unit}?"
    surface = found.surface
    if found.run_seconds is not None:
        return Answer(question, NOT_MEASURED, "it is about equal tokens, and every batch size had equal time", "")
    caveat = "`batchlab critical STUDY` says which runs would tell"
    if surface is not None and surface.best is not None and surface.noise_sd is not None:
        largest = max(row.global_batch_size for row in surface.tied)
        caveat += f"; at this budget the largest batch size statistically tied with the best is {largest:,}"
    said = headline(found)
    if not said:
        return Answer(question, CANNOT_TELL if measured(found) else NOT_MEASURED, caveat, "")
    return Answer(
        question,
        said,
        f"each by its own definition, see Critical batch size; {caveat}",
        "steps to a loss, branches",
    )
