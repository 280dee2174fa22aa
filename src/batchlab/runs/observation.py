"""Diagnostic snapshots of a training run: at the same token counts for every batch size, on the same samples."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from batchlab.core.protocols import Dataset, Diagnosable, RunContext, Trainable
from batchlab.core.record import MetricRow
from batchlab.core.spec import TrainSpec

SAMPLES = 4
"""Held-out samples on which activations and attention are read, the same for every run and every snapshot."""


class Observer:
    """Writes one row of diagnostics per snapshot; idle where the spec asks for none or the trainable takes none."""

    def __init__(self, trainable: Trainable, held_out: Dataset, spec: TrainSpec, context: RunContext) -> None:
        self._context, self._wanted, self._tokens_per_step = context, spec.diagnostics, spec.layout.tokens_per_step
        self._trainable = trainable if isinstance(trainable, Diagnosable) else None
        self._batch = held_out.gather(np.arange(min(SAMPLES, spec.evaluation_batch_size, len(held_out))))

    def before(self, step: int) -> None:
        """To be called before step `step`, counted from 0."""
        if self._trainable is not None and self._wanted is not None and self._due(step + 1):
            self._trainable.watch(self._wanted.level)

    def after(self, steps: int) -> float:
        """To be called when `steps` are done. Returns the seconds that reading took, which are no part of training."""
        if self._trainable is None or not self._due(steps):
            return 0.0
        started = self._trainable.synchronize()
        readings = self._trainable.readings(self._batch)
        row = MetricRow(step=steps, tokens=steps * self._tokens_per_step, diagnostics=finite(readings))
        self._context.row(row)
        return self._trainable.synchronize() - started

    def _due(self, steps: int) -> bool:
        return self._wanted is not None and steps * self._tokens_per_step % self._wanted.interval == 0


def finite(readings: Mapping[str, float]) -> dict[str, float]:
    """The readings without NaN and infinity, which JSON lacks: such a reading becomes `non_finite/<its name>`: 1."""
    return {
        **{name: value for name, value in readings.items() if math.isfinite(value)},
        **{f"non_finite/{name}": 1.0 for name, value in readings.items() if not math.isfinite(value)},
    }
