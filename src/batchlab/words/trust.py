"""The trust strip: the conditions under which a study's numbers hold, each computed from the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.loss_surface import beyond_edge
from batchlab.analysis.values import Run, SurfaceFinding
from batchlab.core.format import (
    format_list,
    format_plural,
)
from batchlab.core.pairing import Pairing
from batchlab.core.record import Outcome
from batchlab.words.damage import left_out
from batchlab.words.phrases import format_differences
from batchlab.words.run_length import exact_run_length, run_length, tokens_of_sizes

WELL_TUNED = 4
"""Learning rates from which on a batch size counts as tuned: coarse grids of three often miss the best."""


@dataclass(frozen=True, slots=True)
class TrustItem:
    """One entry of the trust strip. ok None: unknown."""

    label: str
    ok: bool | None
    detail: str


def trust_items(found: Findings) -> tuple[TrustItem, ...]:
    """Same tokens, LR tuned per batch, seeds, inside the grid, measured = planned budget, in that order; then what is
    mentioned only where it is not as it should be."""
    surface = found.surface
    if surface is None:
        return (TrustItem("training runs", False, "no run has finished"), *_undamaged(found))
    return (
        _same_tokens(found, surface),
        _tuned(surface),
        _seeds(surface),
        _inside(surface),
        _budget(found),
        *_environment(found),
        *_undamaged(found),
    )


def _same_tokens(found: Findings, surface: SurfaceFinding) -> TrustItem:
    done = [run for run in found.runs if run.outcome is Outcome.COMPLETED]
    if found.run_seconds is not None:
        return _same_time(found, surface, done)
    amounts = {run.tokens for run in done}
    unit = found.experiment.unit.value
    label = f"same {unit}"
    if not done:
        return TrustItem(label, None, "no run has completed")
    if len(amounts) > 1:
        return TrustItem(label, False, f"runs saw between {min(amounts):,} and {max(amounts):,} {unit}")
    text = f"{format_plural(len(done), 'run')} of {amounts.pop():,} {unit}"
    match surface.pairing:
        case Pairing.VERIFIED:
            return TrustItem(label, True, f"{text} each, in the same order for every batch size")
        case Pairing.DECLARED:
            return TrustItem(
                label, None, f"{text} each; a seed fixes their order, which was not compared across batch sizes"
            )
        case _:
            return TrustItem(label, None, f"{text} each; their order is unknown")


def _same_time(found: Findings, surface: SurfaceFinding, done: Sequence[Run]) -> TrustItem:
    """Equal time is only as equal as the measured speeds are right."""
    label = "same time"
    if not done:
        return TrustItem(label, None, "no run has completed")
    text = f"{format_plural(len(done), 'run')} of {run_length(found)}, {tokens_of_sizes(found)}"
    disturbed = found.throughput.disturbed if found.throughput else ()
    if disturbed:
        sizes = format_list(disturbed)
        return TrustItem(label, None, f"{text}; other programs used the processor while batch {sizes} was timed")
    match surface.pairing:
        case Pairing.VERIFIED:
            return TrustItem(label, True, f"{text}; equal seeds begin with the same data, in the same order")
        case Pairing.DECLARED:
            return TrustItem(label, None, f"{text}; the task declares the order of its data, which was not verified")
        case _:
            return TrustItem(label, None, f"{text}; the order of the data is unknown")


def _tuned(surface: SurfaceFinding) -> TrustItem:
    judged = [row for row in surface.rows if row.best is not None and not row.undertrained]
    if not judged:
        return TrustItem("LR tuned per batch", None, "no batch size was judged")
    tried = [len(row.cells) for row in judged]
    fewest, most = min(tried), max(tried)
    text = f"{fewest} learning rates" if fewest == most else f"{fewest} to {most} learning rates"
    if fewest == most == 1:
        text = "one learning rate"
    ok = True if fewest >= WELL_TUNED else None if fewest == WELL_TUNED - 1 else False
    where = f"at each of {len(judged)} batch sizes" if len(judged) > 1 else "at the only batch size"
    return TrustItem("LR tuned per batch", ok, f"{text} {where}")


def _seeds(surface: SurfaceFinding) -> TrustItem:
    if surface.noise_sd is None:
        return TrustItem("seeds", False, "n = 1: noise was not measured")
    repeated = [cell for row in surface.rows for cell in row.cells if len(cell.losses) >= 2]
    where = format_list([f"batch {cell.global_batch_size:,} (n = {len(cell.losses)})" for cell in repeated])
    return TrustItem("seeds", True if surface.resolved else None, f"repeated at {where}; n = 1 elsewhere")


def _inside(surface: SurfaceFinding) -> TrustItem:
    label = "inside the grid"
    if not surface.tied:
        return TrustItem(label, None, "no batch size was judged")
    untuned = [row for row in surface.tied if len(row.cells) == 1]
    if untuned:
        return TrustItem(
            label,
            False,
            f"one learning rate was tried at batch {format_list([row.global_batch_size for row in untuned])}",
        )
    edges = [row for row in surface.tied if row.edge]
    sizes = [row.global_batch_size for row in surface.rows if row.val_loss is not None and not row.undertrained]
    size_edge = surface.best is not None and len(sizes) > 1 and surface.best.global_batch_size in (sizes[0], sizes[-1])
    if edges:
        bounded = all(row.best and beyond_edge(row.cells, row.best, row.edge) for row in edges)
        where = f"batch {format_list([row.global_batch_size for row in edges])}"
        if bounded:
            return TrustItem(label, None, f"at {where} the best learning rate is next to one without a finite loss")
        return TrustItem(label, False, f"at {where} the best learning rate is the lowest or highest tried")
    if size_edge and surface.best is not None:
        end = "smallest" if surface.best.global_batch_size == sizes[0] else "largest"
        return TrustItem(label, None, f"the best batch size is the {end} judged; its learning rate is inside the grid")
    return TrustItem(
        label,
        True,
        "every statistically tied size has a higher loss, by any amount, on both sides of its learning rate",
    )


def _budget(found: Findings) -> TrustItem:
    label = "measured = planned budget"
    done = [run for run in found.runs if run.outcome is Outcome.COMPLETED]
    if not done or not found.token_budget:
        return TrustItem(label, None, "no run has completed")
    off = [run for run in done if run.tokens != found.tokens_at(run.global_batch_size)]
    if off:
        return TrustItem(
            label,
            False,
            f"{len(off)} of {format_plural(len(done), 'completed run')} did not train on {exact_run_length(found)}",
        )
    planned = found.planned_runs
    if found.partial and planned is not None and len(found.runs) < planned:
        return TrustItem(label, None, f"{len(found.runs)} of {planned} planned runs so far, each of the whole budget")
    return TrustItem(label, True, f"{format_plural(len(done), 'run')} of exactly {exact_run_length(found)}")


def _environment(found: Findings) -> list[TrustItem]:
    items = []
    if found.environments_differ:
        items.append(TrustItem("one environment", False, "; ".join(format_differences(found.environments_differ))))
    if found.accepted_edits:
        items.append(TrustItem("unchanged code", False, f"accepted edits: {', '.join(found.accepted_edits)}"))
    return items


def _undamaged(found: Findings) -> list[TrustItem]:
    runs = left_out(found.damaged)
    if not runs:
        return []
    are = "is" if len(runs) == 1 else "are"
    return [
        TrustItem(
            "every run used",
            False,
            f"{format_plural(len(runs), 'run')} {are} left out because of files that are damaged or were set aside; "
            "the failures list them",
        )
    ]
