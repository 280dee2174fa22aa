"""The first screen's doubts: the trust strip, the questions with their answers, and what was not answered."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.loss_surface import beyond_edge
from batchlab.analysis.values import SurfaceFinding
from batchlab.core.format import (
    format_bytes,
    format_count,
    format_interval,
    format_layout,
    format_learning_rate,
    format_list,
    format_plural,
    format_throughput,
)
from batchlab.core.record import Outcome
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.conclusions import format_good_set
from batchlab.words.critical import headline, measured
from batchlab.words.phrases import format_seeds
from batchlab.words.recommendation import describe_reason

NOT_MEASURED = "not measured in this study"
WELL_TUNED = 4
"""Learning rates per batch size from which on a size counts as tuned: coarse grids of three often miss the best."""


@dataclass(frozen=True, slots=True)
class TrustItem:
    """One entry of the trust strip. ok None: not known."""

    label: str
    ok: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One question of the first screen."""

    question: str
    answer: str
    doubt: str
    evidence: str


def trust_items(found: Findings) -> tuple[TrustItem, ...]:
    """Same tokens, LR tuned per batch, seeds, inside the grid, measured = planned budget; in that order."""
    surface = found.surface
    if surface is None:
        return (TrustItem("training runs", False, "none has finished"),)
    return (
        _same_tokens(found, surface),
        _tuned(surface),
        _seeds(surface),
        _inside(surface),
        _budget(found),
        *_environment(found),
    )


def _same_tokens(found: Findings, surface: SurfaceFinding) -> TrustItem:
    done = [run for run in found.runs if run.outcome is Outcome.COMPLETED]
    amounts = {run.tokens for run in done}
    unit = found.experiment.unit.value
    label = f"same {unit}"
    if not done:
        return TrustItem(label, None, "no run has completed")
    if len(amounts) > 1:
        return TrustItem(label, False, f"runs saw between {min(amounts):,} and {max(amounts):,} {unit}")
    text = f"{format_plural(len(done), 'run')} of {amounts.pop():,} {unit}"
    match surface.pairing:
        case "verified":
            return TrustItem(label, True, f"{text} each, in the same order for every batch size")
        case "declared":
            return TrustItem(label, None, f"{text} each; their order is declared by the task, not verified")
        case _:
            return TrustItem(label, None, f"{text} each; nothing is known about their order")


def _tuned(surface: SurfaceFinding) -> TrustItem:
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    if not judged:
        return TrustItem("LR tuned per batch", None, "no batch size is judged")
    tried = [len(row.cells) for row in judged]
    fewest, most = min(tried), max(tried)
    text = f"{fewest} learning rates" if fewest == most else f"{fewest} to {most} learning rates"
    if fewest == most == 1:
        text = "one learning rate"
    ok = True if fewest >= WELL_TUNED else None if fewest == WELL_TUNED - 1 else False
    return TrustItem("LR tuned per batch", ok, f"{text} at each of {format_plural(len(judged), 'batch size')}")


def _seeds(surface: SurfaceFinding) -> TrustItem:
    if surface.noise_sd is None:
        return TrustItem("seeds", False, "n = 1: noise was not measured")
    repeated = [cell for row in surface.rows for cell in row.cells if len(cell.losses) >= 2]
    where = format_list([f"batch {cell.global_batch_size:,} (n = {len(cell.losses)})" for cell in repeated])
    return TrustItem("seeds", True if surface.resolved else None, f"repeated at {where}; one seed elsewhere")


def _inside(surface: SurfaceFinding) -> TrustItem:
    label = "inside the grid"
    good = [row for row in surface.rows if row.tied]
    if not good:
        return TrustItem(label, None, "no batch size is judged")
    untuned = [row for row in good if len(row.cells) == 1]
    if untuned:
        return TrustItem(label, False, "one learning rate was tried, so its best is unknown")
    edges = [row for row in good if row.edge]
    sizes = [row.global_batch_size for row in surface.rows]
    size_edge = surface.best is not None and len(sizes) > 1 and surface.best.global_batch_size in (sizes[0], sizes[-1])
    if edges:
        bounded = all(row.best and beyond_edge(row.cells, row.best, row.edge) for row in edges)
        where = f"batch {format_list([row.global_batch_size for row in edges])}"
        if bounded:
            return TrustItem(
                label, None, f"at {where} the next learning rate has no finite loss: the best is bounded, not enclosed"
            )
        return TrustItem(label, False, f"at {where} the best learning rate is the last one tried")
    if size_edge and surface.best is not None:
        end = "smallest" if surface.best.global_batch_size == sizes[0] else "largest"
        return TrustItem(label, None, f"learning rates are enclosed, but the best batch is the {end} tried")
    return TrustItem(label, True, "every as-good size's best learning rate lies between others that were worse")


def _budget(found: Findings) -> TrustItem:
    label = "measured = planned budget"
    done = [run for run in found.runs if run.outcome is Outcome.COMPLETED]
    unit = found.experiment.unit.value
    if not done or not found.token_budget:
        return TrustItem(label, None, "no run has completed")
    off = [run for run in done if run.tokens != found.token_budget]
    if off:
        return TrustItem(
            label,
            False,
            f"{len(off)} of {format_plural(len(done), 'completed run')} missed {found.token_budget:,} {unit}",
        )
    planned = found.planned_runs
    if found.partial and planned is not None and len(found.runs) < planned:
        return TrustItem(label, None, f"{len(found.runs)} of {planned} planned runs so far, each with its whole budget")
    return TrustItem(label, True, f"{format_plural(len(done), 'run')} of exactly {found.token_budget:,} {unit}")


def _environment(found: Findings) -> list[TrustItem]:
    items = []
    if found.environments_differ:
        items.append(TrustItem("one environment", False, "; ".join(found.environments_differ)))
    if found.accepted_edits:
        items.append(TrustItem("unchanged code", False, f"accepted edits: {', '.join(found.accepted_edits)}"))
    return items


def answers(found: Findings) -> tuple[Answer, ...]:
    """The questions of a study, each with answer, doubt and evidence; unanswered ones say so."""
    return (
        _micro_batch(found),
        Answer(
            "How large on a card I don't have?",
            NOT_MEASURED,
            "memory here does not predict another device's allocator and kernels",
            "",
        ),
        _fastest(found),
        _quality(found),
        _scale(found),
        _train_with(found),
        _trust(found),
    )


def _micro_batch(found: Findings) -> Answer:
    question, memory = "How large a micro-batch fits?", found.memory
    if memory is None:
        return Answer(question, NOT_MEASURED, "no size was probed", "")
    probes = f"{format_plural(len(memory.points), 'size')} probed with whole steps, each in a fresh process"
    if memory.max_micro_batch_size is None:
        why = "ran out of memory" if memory.points else "needs more by its trace"
        return Answer(question, "none", f"even the smallest size tried {why}", probes)
    largest = memory.max_micro_batch_size
    if memory.status == "proved":
        answer = f"{largest:,} (proved: {largest + 1:,} ran out of memory)"
    elif memory.smallest_failed is not None:
        answer = f"{largest:,} (verified; {memory.smallest_failed:,} ran out of memory)"
    else:
        answer = f"at least {largest:,} (verified)" if memory.reached_the_end else f"{largest:,} ({memory.status})"
    doubts = []
    if memory.smallest_failed is None and not memory.reached_the_end:
        doubts.append("one more was predicted not to fit, and not run")
    elif memory.smallest_failed is None:
        doubts.append("larger sizes were not needed and not tried")
    elif memory.smallest_failed > largest + 1:
        doubts.append(f"sizes from {largest + 1:,} to {memory.smallest_failed - 1:,} were not tried")
    if memory.left_bytes is not None and memory.limit_bytes is not None:
        bound = describe_limit(memory.limit_is)
        doubts.append(f"{format_bytes(memory.left_bytes)} of {format_bytes(memory.limit_bytes)}{bound} left free")
    return Answer(question, answer, "; ".join(doubts), probes)


def _fastest(found: Findings) -> Answer:
    question, speed, unit = "What is the fastest batch?", found.throughput, found.experiment.unit
    top = speed.at(speed.fastest) if speed and speed.fastest is not None else None
    if speed is None or top is None:
        return Answer(question, NOT_MEASURED, "no speed was measured", "")
    answer = f"{speed.fastest:,}: {format_throughput(top.tokens_per_second.value, unit)}"
    if speed.knee is not None and speed.knee != speed.fastest:
        answer += f"; {speed.knee:,} is within 10 % of it"
    low, high = top.tokens_per_second.low, top.tokens_per_second.high
    spread = f"blocks from {format_throughput(low, unit)} to {format_throughput(high, unit)}" if low and high else ""
    largest = speed.points[-1].layout.global_batch_size
    if speed.fastest == largest:
        spread += "; the largest size measured is the fastest" if spread else "the largest size measured is the fastest"
    if speed.disturbed:
        spread += f"; measured while other programs were busy at batch {format_list(speed.disturbed)}"
    if speed.falls_off:
        spread += f"; batch {format_list(speed.falls_off)} falls off"
    return Answer(
        question,
        answer,
        spread + "; MFU not computed",
        f"{format_plural(len(speed.points), 'size')}, each alone on the device after warm-up, median of "
        f"{top.tokens_per_second.n} blocks",
    )


def _quality(found: Findings) -> Answer:
    question, surface = "Which batch and LR give the best loss for this budget?", found.surface
    if surface is None:
        return Answer(question, "cannot tell", "no training run has finished", "")
    runs = format_plural(len(found.runs), "run")
    best = surface.best
    if best is None or best.best is None or best.val_loss is None:
        return Answer(question, "cannot tell", surface.cannot_tell, runs)
    where = f"batch {best.global_batch_size:,} at LR {format_learning_rate(best.best.learning_rate)}: {format_interval(best.val_loss)}"
    if surface.noise_sd is None:
        doubt = "n = 1: noise unknown, so this is the lowest loss seen, not a winner"
    else:
        where += f"; as good: {format_good_set(surface)}" if len(surface.tied) > 1 else ""
        doubt = f"n = {format_seeds(surface, best)}, {surface.noise_df} degrees of freedom"
        single = [row for row in surface.tied if row.val_loss and row.val_loss.n == 1]
        doubt += f"; n = 1 at batch {format_list([row.global_batch_size for row in single])}" if single else ""
    doubt += f"; {best.remark}" if best.remark else ""
    doubt += "; the study is not finished" if found.partial else ""
    sizes = format_plural(len(surface.rows), "batch size")
    return Answer(question, where, doubt, f"{runs} over {sizes}, each judged at its own best LR")


def _scale(found: Findings) -> Answer:
    question = f"How far can I scale before I waste {found.experiment.unit}?"
    surface = found.surface
    doubt = "batchlab critical STUDY says what is known and which runs would settle the rest"
    if surface is not None and surface.best is not None and surface.noise_sd is not None:
        largest = max(row.global_batch_size for row in surface.tied)
        doubt += f"; at this budget the largest batch that noise cannot separate from the best is {largest:,}"
    said = headline(found)
    if not said:
        return Answer(question, "cannot tell" if measured(found) else NOT_MEASURED, doubt, "")
    return Answer(
        question,
        said,
        f"each by its own definition, see Critical batch size; {doubt}",
        "gradient norms, steps to a loss, branches",
    )


def _train_with(found: Findings) -> Answer:
    question, chosen = "So what do I train with?", found.recommended
    if chosen is None:
        why = found.surface.cannot_tell if found.surface else "no training run has finished"
        return Answer(question, "cannot tell", why, "")
    layout = format_layout(chosen.layout, found.experiment.unit)
    doubts = (
        [f"budgets other than {format_count(found.token_budget)} {found.experiment.unit.value}"]
        if found.token_budget
        else []
    )
    doubts.append("other models, data or optimizer settings")
    return Answer(
        question,
        f"{layout}, LR {format_learning_rate(chosen.learning_rate)}",
        f"{describe_reason(chosen.reason)}; not measured: {' and '.join(doubts)}",
        "training_plan.json names the run or rule behind each number",
    )


def _trust(found: Findings) -> Answer:
    items = trust_items(found)
    bad = [f"{item.label} ({'no' if item.ok is False else 'not known'})" for item in items if not item.ok]
    good = len(items) - len(bad)
    return Answer(
        "Can I trust this study?",
        f"{good} of {len(items)} conditions hold",
        "; ".join(bad),
        "the strip above: each condition is computed from the records",
    )


def _everywhere_the_same(surface: SurfaceFinding) -> bool:
    """Several cells, and not one loss that differs from another."""
    losses = [cell.losses for row in surface.rows for cell in row.cells if cell.losses]
    return len(losses) > 1 and len({loss for of_cell in losses for loss in of_cell}) == 1


def unknown(found: Findings) -> tuple[str, ...]:
    """What this study does not say, as short phrases, the most consequential first."""
    unit = found.experiment.unit.value
    missing = []
    if found.partial:
        left = f": {len(found.runs)} of {found.planned_runs} runs so far" if found.planned_runs else ""
        missing.append(f"the study is not finished{left}")
    if found.recommended is None:
        missing.append(found.surface.cannot_tell.rstrip(".") if found.surface else "no training run has finished")
    surface = found.surface
    if surface is not None:
        if surface.noise_sd is None and surface.best is not None:
            missing.append("whether any difference is more than noise (n = 1)")
        if _everywhere_the_same(surface):
            missing.append("which batch size or learning rate is better: all losses are identical")
        asked = set(found.experiment.batch.global_batch_sizes)
        tried = {row.global_batch_size for row in surface.rows if row.cells}
        for absent, why in (
            (asked & tried - {row.global_batch_size for row in surface.rows if row.best}, "no finite loss"),
            (asked - tried, "not run"),
        ):
            if absent:
                missing.append(f"batch {format_list(sorted(absent))}: {why}")
        judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
        untuned = [row.global_batch_size for row in judged if len(row.cells) == 1]
        edges = [row.global_batch_size for row in judged if row.edge]
        if untuned:
            missing.append(f"the best learning rate of batch {format_list(untuned)} (one was tried)")
        if edges:
            missing.append(f"how much better batch {format_list(edges)} would be beyond the edge of the learning rates")
        undertrained = [row.global_batch_size for row in surface.rows if row.undertrained]
        if undertrained:
            missing.append(f"batch {format_list(undertrained)}: too few steps at this budget to be judged")
    if found.token_budget:
        missing.append(f"budgets beyond {format_count(found.token_budget)} {unit}")
    if not headline(found):
        missing.append("the critical batch size")
    memory = found.memory
    if memory is not None and memory.max_micro_batch_size is not None:
        largest = memory.max_micro_batch_size
        if memory.reached_the_end:
            missing.append(f"whether micro-batches above {largest:,} fit")
        else:
            how = "only by accumulation" if found.sample_independent else "do not fit, and this model cannot be split"
            missing.append(f"{memory.smallest_failed or largest + 1:,} and more samples at once: {how}")
    missing.append("memory on another device")
    return tuple(missing)
