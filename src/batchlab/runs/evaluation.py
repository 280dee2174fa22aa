"""The held-out loss of a model, and its standard error over the held-out samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from batchlab.core.protocols import Batch, Dataset, Trainable


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean loss per target, and its standard error over batches of samples; None with a single batch."""

    loss: float
    error: float | None


def evaluation_batches(held_out: Dataset, samples: int, batch_size: int) -> Iterator[Batch]:
    """The first `samples` held-out samples in order, the same for every run of a study."""
    stop = min(samples, len(held_out))
    for start in range(0, stop, batch_size):
        yield held_out.gather(np.arange(start, min(start + batch_size, stop)))


def evaluate(trainable: Trainable, batches: list[Batch]) -> Evaluation:
    """Mean held-out loss over all targets: Σ losses / Σ counts, never a mean of means.

    The error is that of a ratio, √(n/(n − 1) · Σ (Lᵢ − mean·Cᵢ)²) / Σ C over n batches of consecutive samples, so that
    correlated neighbouring samples are in one batch (Cochran 1977, Sampling techniques, eq. 6.13).
    """
    return evaluation_of([(float(loss), count) for loss, count in (trainable.evaluate(batch) for batch in batches)])


def evaluation_of(sums: Sequence[tuple[float, float]]) -> Evaluation:
    """The same from (Σ losses, count) of every batch."""
    total = sum(count for _, count in sums)
    mean = sum(loss for loss, _ in sums) / total
    if len(sums) < 2:
        return Evaluation(mean, None)
    squares = sum((loss - mean * count) ** 2 for loss, count in sums)
    return Evaluation(mean, math.sqrt(len(sums) / (len(sums) - 1) * squares) / total)
