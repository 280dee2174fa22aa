"""What limits a batch size's result, and why a sweep has no best batch size."""

from __future__ import annotations

from typing import assert_never

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.learning_rate_fit import MIN_CELLS
from batchlab.analysis.sweep.loss_surface import beyond_edge
from batchlab.analysis.values import AllUndertrained, BatchRow, Cell, FitProblem, NoBest, NoFiniteLoss, NoFit
from batchlab.core.format import format_learning_rate, format_plural
from batchlab.core.record import Outcome
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS
from batchlab.words.check import check_failed


def no_answer(found: Findings) -> str:
    """Why a study recommends nothing, as a sentence."""
    no_best = found.surface.no_best if found.surface else None
    if no_best:
        return describe_no_best(no_best)
    failed = "" if found.runs else check_failed(found.checks)
    return failed or "No training run has finished."


def describe_no_best(no_best: NoBest) -> str:
    """Why there is no best batch size, as a sentence."""
    match no_best:
        case AllUndertrained(sizes):
            who = f"All {sizes} batch sizes" if sizes > 1 else "The only batch size"
            return (
                f"{who} with a finite loss {'are' if sizes > 1 else 'is'} undertrained (under {MIN_STEPS} steps, or "
                f"under {MIN_WARMUP_STEPS} warm-up steps): use a larger token budget or smaller batches."
            )
        case NoFiniteLoss(runs, outcomes):
            ended = " or ".join(outcome.label for outcome in outcomes)
            return f"None of the {format_plural(runs, 'training run')} has a finite loss ({ended})."
    assert_never(no_best)


def describe_row(row: BatchRow) -> str:
    """What limits a batch size's result: too few steps, no loss, an untuned learning rate, an edge; else empty."""
    runs = [run for cell in row.cells for run in cell.runs]
    parts = []
    if row.undertrained:
        parts.append(f"undertrained: {format_plural(max(run.steps for run in runs), 'step')} at most")
    if row.best is None:
        ended = sorted({run.outcome.label for run in runs if run.outcome is not Outcome.COMPLETED})
        parts.append(" and ".join(ended) if ended else "no finite loss")
    elif len(row.cells) == 1:
        parts.append("only one learning rate tried")
    elif row.edge:
        parts.append(_edge(row, row.best))
    return "; ".join(parts)


def _edge(row: BatchRow, best: Cell) -> str:
    beyond = beyond_edge(row.cells, best, row.edge)
    if beyond is None:
        return f"the best learning rate is the {'highest' if row.edge == 'high' else 'lowest'} tried"
    ended = " and ".join(sorted({run.outcome.label for run in beyond.runs}))
    return f"the next learning rate, {format_learning_rate(beyond.learning_rate)}, {ended}"


def describe_no_fit(no_fit: NoFit) -> str:
    """Why no learning rate was interpolated, as a clause."""
    match no_fit.problem:
        case FitProblem.TOO_FEW:
            rates = format_plural(no_fit.finite, "learning rate has", "learning rates have")
            return f"{rates} a finite loss, and a fit needs {MIN_CELLS}"
        case FitProblem.AT_EDGE:
            return "the best learning rate is at the edge of those with a finite loss"
        case FitProblem.NOT_CONVEX:
            return "the loss is not convex around the best learning rate"
        case FitProblem.OUTSIDE:
            return "the fitted best is outside the learning rates tried"
        case FitProblem.TOO_FAR:
            return f"the fitted best is {no_fit.doublings:.1f} doublings from the best learning rate tried"
    assert_never(no_fit.problem)
