"""Training records as the analysis sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from batchlab.analysis.values import BatchRow, Course, Run, SurfaceFinding
from batchlab.core.record import Outcome, Record, TrainResult
from batchlab.core.spec import Spec, TrainSpec


def runs_from(
    records: Iterable[tuple[Spec, Record]], course: Callable[[str], Course] = lambda run_id: Course()
) -> tuple[Run, ...]:
    """Every training run, ordered by batch size, warm-up, learning rate and seed; other records are left out.

    `course(run_id)` is made of the run's metrics. A validation loss that is not finite counts as none.
    """
    runs = [_run(spec, record, course(record.run_id)) for spec, record in records if isinstance(spec, TrainSpec)]
    return tuple(
        sorted(runs, key=lambda run: (run.global_batch_size, run.warmup_fraction, run.learning_rate, run.seed))
    )


def shown_run(runs: Iterable[Run]) -> Run | None:
    """The completed one with the lowest seed: the run that a cell is drawn by, and whose rows are kept."""
    return min((run for run in runs if run.outcome is Outcome.COMPLETED), key=lambda run: run.seed, default=None)


def _run(spec: TrainSpec, record: Record, course: Course) -> Run:
    result = record.result if isinstance(record.result, TrainResult) else TrainResult(steps=0, tokens=0)
    return Run(
        run_id=record.run_id,
        layout=spec.layout,
        learning_rate=spec.learning_rate,
        seed=spec.seed,
        outcome=record.outcome,
        reason=record.reason,
        steps=result.steps,
        tokens=result.tokens,
        undertrained=spec.undertrained or result.undertrained,
        val_loss=_finite(result.val_loss),
        train_loss=_finite(result.final_train_loss),
        best_val_loss=_finite(result.best_val_loss),
        grad_norm=_finite(result.final_grad_norm),
        clipped_fraction=_finite(result.clipped_fraction),
        epochs=result.epochs,
        seconds=result.seconds,
        tokens_per_second=result.tokens_per_second,
        peak_bytes=result.peak_bytes,
        measured=result.measured,
        peak_in_use_bytes=result.peak_in_use_bytes,
        pairing=record.pairing,
        resumed=result.resumed,
        val_error=_finite(result.val_error),
        val_draws_sd=_finite(result.val_draws_sd),
        val_curve=tuple((tokens, loss) for tokens, loss in result.val_curve if math.isfinite(loss)),
        warmup_fraction=spec.schedule.warmup_fraction,
        course=course,
    )


def first_runs(surface: SurfaceFinding | None) -> list[tuple[BatchRow, Run]]:
    """One completed run per batch size, smallest size first: at its best learning rate, with the lowest seed."""
    rows = sorted(surface.rows if surface else (), key=lambda row: row.global_batch_size)
    return [
        (row, run) for row in rows if row.val_loss and (run := shown_run(row.best.runs if row.best else ())) is not None
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
