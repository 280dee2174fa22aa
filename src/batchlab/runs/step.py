"""One optimizer step over any Trainable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

from batchlab.core.batch import BatchLayout
from batchlab.core.protocols import StepStats, Trainable, TransfersTogether
from batchlab.data.stream import SampleStream
from batchlab.runs.gradient_samples import GradientSampler


def to_host(trainable: Trainable, values: Sequence[SupportsFloat]) -> list[float]:
    """Numbers that may be on the device, in one transfer where the trainable can."""
    if isinstance(trainable, TransfersTogether):
        return trainable.to_host(values)
    return [float(value) for value in values]


def stats_on_host(trainable: Trainable, steps: Sequence[StepStats]) -> list[StepStats]:
    """The statistics of finished steps as numbers."""
    numbers = iter(to_host(trainable, [value for stats in steps for value in stats]))
    return [StepStats(*(next(numbers) for _ in stats)) for stats in steps]


def one_step(
    trainable: Trainable,
    stream: SampleStream,
    layout: BatchLayout,
    step: int,
    learning_rate: float,
    sampler: GradientSampler | None = None,
) -> StepStats:
    """Train on samples [k·B, (k+1)·B) of the stream at step k, in micro-batches.

    The gradient is Σ losses / Σ counts over the whole global batch, so unequal micro-batches are weighted correctly.
    """
    due = sampler if sampler is not None and sampler.due(step) else None
    start = step * layout.global_batch_size
    micro_batches = []
    for size in layout.micro_batch_sizes() if due is None else due.sizes(step):
        micro_batches.append(stream.batch(start, start + size))
        start += size
    counts = [trainable.count(batch) for batch in micro_batches]
    if due is not None:
        due.accumulate(micro_batches, counts, step)
    else:
        weight = 1.0 / sum(counts)
        for batch in micro_batches:
            trainable.accumulate(batch, weight)
    return trainable.apply(learning_rate)
