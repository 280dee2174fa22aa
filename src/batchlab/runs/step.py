"""One optimizer step over any Trainable, on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, SupportsFloat

from batchlab.core.batch import BatchLayout
from batchlab.core.protocols import SharesSums, StepStats, Trainable, TransfersTogether
from batchlab.core.ranks import ALONE, Ranks
from batchlab.data.stream import SampleStream
from batchlab.runs.gradient_samples import GradientSampler


class Wishes(NamedTuple):
    """What is to happen after a step: it does where any rank wants it, because clocks and signals differ by rank."""

    stop: bool = False
    save: bool = False


NO_WISHES = Wishes()


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
    *,
    ranks: Ranks = ALONE,
) -> StepStats:
    """Train on samples [k·B, (k+1)·B) of the stream at step k, in micro-batches.

    The gradient is Σ losses / Σ counts over the whole global batch, so unequal micro-batches, and unequal shares of
    ranks, are weighted correctly.
    """
    return agreed_step(trainable, stream, layout, step, learning_rate, NO_WISHES, sampler, ranks)[0]


def agreed_step(
    trainable: Trainable,
    stream: SampleStream,
    layout: BatchLayout,
    step: int,
    learning_rate: float,
    wishes: Wishes,
    sampler: GradientSampler | None = None,
    ranks: Ranks = ALONE,
) -> tuple[StepStats, Wishes]:
    """`one_step`, and what the ranks agreed on: they speak once in a step, before its first backward pass."""
    due = sampler if sampler is not None and sampler.due(step) else None
    start = step * layout.global_batch_size + layout.samples_before(ranks.rank)
    micro_batches = []
    for size in layout.micro_batch_sizes(ranks.rank) if due is None else due.sizes(step):
        micro_batches.append(stream.batch(start, start + size))
        start += size
    counts = [trainable.count(batch) for batch in micro_batches]
    count, stop, save = ranks.sum([sum(counts), wishes.stop, wishes.save])
    if due is not None:
        due.accumulate(micro_batches, counts, step)
    else:
        *first, last = micro_batches
        for batch in first:
            trainable.accumulate(batch, 1.0 / count)
        if ranks.size > 1:
            assert isinstance(trainable, SharesSums)
            trainable.accumulate_last(last, 1.0 / count)
        else:
            trainable.accumulate(last, 1.0 / count)
    return trainable.apply(learning_rate), Wishes(stop > 0, save > 0)
