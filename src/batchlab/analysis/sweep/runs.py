"""Training records as the analysis sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from batchlab.analysis.values import BatchRow, Run, SurfaceFinding
from batchlab.core.record import MetricRow, Outcome, Record, TrainResult
from batchlab.core.spec import Spec, TrainSpec


def runs_from(
    records: Iterable[tuple[Spec, Record]], rows: Callable[[str], list[MetricRow]] | None = None
) -> tuple[Run, ...]:
    """Every training run, ordered by batch size, learning rate and seed; other records are left out.

    `rows(run_id)` gives a run's metrics. A validation loss that is not finite counts as none.
    """
    runs = [_run(spec, record, rows) for spec, record in records if isinstance(spec, TrainSpec)]
    return tuple(sorted(runs, key=lambda run: (run.global_batch_size, run.learning_rate, run.seed)))


def _run(spec: TrainSpec, record: Record, rows: Callable[[str], list[MetricRow]] | None) -> Run:
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
        rows=tuple(rows(record.run_id)) if rows is not None else (),
    )


def first_runs(surface: SurfaceFinding | None) -> list[tuple[BatchRow, Run]]:
    """One completed run per batch size, smallest size first: at its best learning rate, with the lowest seed."""
    pairs = []
    for row in sorted(surface.rows if surface else (), key=lambda row: row.global_batch_size):
        done = [run for run in (row.best.runs if row.best else ()) if run.outcome is Outcome.COMPLETED]
        if done and row.val_loss:
            pairs.append((row, min(done, key=lambda run: run.seed)))
    return pairs


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
