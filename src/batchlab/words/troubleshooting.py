"""Troubleshooting as a table to look up: what is seen, what to do with this tool, and whether it applies to the study.

The usual remedies (out of memory: a smaller batch; slow convergence: a larger one with a scaled learning rate; poor
generalization: a smaller one) change what is trained, so each row says what to measure instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow
from batchlab.core.format import format_list, format_plural
from batchlab.core.record import Outcome
from batchlab.words.phrases import format_tied


@dataclass(frozen=True, slots=True)
class Trouble:
    """One row. `here`: what of it was seen in this study; empty where nothing was."""

    issue: str
    symptom: str
    remedy: str
    here: str


def troubles(found: Findings) -> tuple[Trouble, ...]:
    """Every row, those that apply first."""
    rows = [Trouble(issue, symptom, remedy, seen(found)) for issue, symptom, remedy, seen in _ROWS]
    return tuple(sorted(rows, key=lambda row: not row.here))


def _out_of_memory(found: Findings) -> str:
    sizes = _sizes_that(found, Outcome.OUT_OF_MEMORY)
    return f"training ran out of memory at batch {format_list(sizes)}" if sizes else ""


def _unstable(found: Findings) -> str:
    parts = []
    if sizes := _sizes_that(found, Outcome.DIVERGED):
        parts.append(f"runs diverged at batch {format_list(sizes)}")
    if spiked := {spike.run_id for spike in found.diagnostics.spikes}:
        parts.append(f"{format_plural(len(spiked), 'run')} had loss spikes")
    return "; ".join(parts)


def _slow_convergence(found: Findings) -> str:
    sizes = [row.global_batch_size for row in _rows(found) if row.undertrained]
    return f"too few steps at batch {format_list(sizes)}" if sizes else ""


def _poor_generalization(found: Findings) -> str:
    """Training loss below the validation loss of the recommended size by more than the noise between seeds."""
    size = found.recommended.layout.global_batch_size if found.recommended else None
    row = next((row for row in _rows(found) if row.global_batch_size == size), None)
    gaps = [
        run.val_loss - run.train_loss
        for run in (row.best.runs if row and row.best else ())
        if run.val_loss is not None and run.train_loss is not None and run.epochs > 1
    ]
    sd = found.surface.noise_sd if found.surface else None
    if not gaps or sd is None or sum(gaps) / len(gaps) <= 2 * sd:
        return ""
    return f"at batch {size:,} the data was repeated, and the training loss is lower than the validation loss"


def _low_throughput(found: Findings) -> str:
    speed = found.throughput
    if speed is None:
        return ""
    parts = []
    if speed.falls_off:
        parts.append(f"batch {format_list(speed.falls_off)} is slower than a smaller one")
    if speed.disturbed:
        parts.append(f"other programs used the processor at batch {format_list(speed.disturbed)}")
    return "; ".join(parts)


def _no_winner(found: Findings) -> str:
    surface = found.surface
    if surface is None or surface.best is None:
        return ""
    if surface.noise_sd is None:
        return "no seed was repeated"
    return f"batch {format_tied(surface)} are within noise" if len(surface.tied) > 1 else ""


def _at_the_edge(found: Findings) -> str:
    surface = found.surface
    judged = [row for row in _rows(found) if row.val_loss is not None and not row.undertrained]
    if surface is None or surface.best is None or len(judged) < 2:
        return ""
    parts = []
    if surface.best is judged[0] or surface.best is judged[-1]:
        parts.append(f"batch {surface.best.global_batch_size:,} is at the end of the sizes tried")
    if edges := [row.global_batch_size for row in judged if row.edge and row.tied]:
        parts.append(f"the learning rate of batch {format_list(edges)} is at the end of those tried")
    return "; ".join(parts)


def _rows(found: Findings) -> tuple[BatchRow, ...]:
    return found.surface.rows if found.surface else ()


def _sizes_that(found: Findings, outcome: Outcome) -> list[int]:
    return sorted({run.global_batch_size for run in found.runs if run.outcome is outcome})


Seen = Callable[[Findings], str]

_ROWS: tuple[tuple[str, str, str, Seen], ...] = (
    (
        "Out of memory",
        "training crashes",
        "Smaller micro-batches with gradient accumulation keep the batch size; `batchlab capacity` finds the largest.",
        _out_of_memory,
    ),
    (
        "Training unstable",
        "loss spikes, NaN",
        "A lower learning rate first; then a longer warm-up or gradient clipping; then a smaller batch.",
        _unstable,
    ),
    (
        "Slow convergence",
        "many steps or epochs needed",
        "A larger budget or a smaller batch, which has more steps; a larger batch helps only where it is sooner.",
        _slow_convergence,
    ),
    (
        "Poor generalization",
        "validation far above training loss",
        "More data or regularization; a smaller batch only if the study shows a lower loss there.",
        _poor_generalization,
    ),
    (
        "Low throughput",
        "slower than expected",
        "Larger micro-batches up to the knee, TF32 or bf16, compilation; `batchlab throughput` compares them.",
        _low_throughput,
    ),
    (
        "No winner",
        "sizes within noise of each other",
        "More seeds (--seeds); at equal loss, choose by time.",
        _no_winner,
    ),
    (
        "Best at the edge",
        "the lowest loss is at the smallest or largest value",
        "Extend --batch-sizes or --learning-rates in that direction.",
        _at_the_edge,
    ),
)
