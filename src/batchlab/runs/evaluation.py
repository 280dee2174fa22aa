"""The held-out loss of a model, and its standard error over the held-out samples.

A loss may draw random numbers, as a diffusion loss draws its noise and its time. Then every held-out batch has draws of
its own, fixed by its place, so that all runs of a study, at all of their evaluations, are compared on equal draws. What
other draws would have given is measured once, at the end of a run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np

from batchlab.core.metric import Metric
from batchlab.core.protocols import Batch, Dataset, EvaluatesDraws, MeasuresMetric, Trainable
from batchlab.runs.step import to_host

DRAWS = 4
"""Sets of draws, the fixed one among them, whose spread is measured."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean loss per target.

    error: its standard error over batches of samples, with their draws; None with a single batch. draws_sd: standard
    deviation over `DRAWS` sets of draws on the same samples; None where the loss draws nothing or it was not measured.
    """

    loss: float
    error: float | None
    draws_sd: float | None = None


def evaluation_batches(held_out: Dataset, samples: int, batch_size: int) -> Iterator[Batch]:
    """The first `samples` held-out samples in order, the same for every run of a study."""
    stop = min(samples, len(held_out))
    for start in range(0, stop, batch_size):
        yield held_out.gather(np.arange(start, min(start + batch_size, stop)))


def evaluate(
    trainable: Trainable, batches: Sequence[Batch], *, metric: Metric | None = None, other_draws: bool = False
) -> Evaluation:
    """Mean held-out loss over all targets: Σ losses / Σ counts, never a mean of means. With a metric, that instead.

    `other_draws`: measure the spread over further draws, where the loss draws anything.

    The error is that of a ratio, √(n/(n − 1) · Σ (Lᵢ − mean·Cᵢ)²) / Σ C over n batches of consecutive samples, so that
    correlated neighbouring samples are in one batch (Cochran 1977, Sampling techniques, eq. 6.13).
    """
    if metric is not None:
        assert isinstance(trainable, MeasuresMetric)
        measured = (trainable.measure(batch) for batch in batches)
        return evaluation_of([(metric.judged(float(total) / count) * count, count) for total, count in measured])
    sums = _sums(trainable, batches, 0)
    return evaluation_of(sums, _draws_sd(trainable, batches, sums) if other_draws else None)


def evaluation_of(sums: Sums, draws_sd: float | None = None) -> Evaluation:
    """The evaluation whose batches had these sums."""
    total, mean = sum(count for _, count in sums), _mean(sums)
    if len(sums) < 2:
        return Evaluation(mean, None, draws_sd)
    squares = sum((loss - mean * count) ** 2 for loss, count in sums)
    return Evaluation(mean, math.sqrt(len(sums) / (len(sums) - 1) * squares) / total, draws_sd)


Sums = Sequence[tuple[float, float]]
"""(Σ losses, count) of each batch."""


def _sums(trainable: Trainable, batches: Sequence[Batch], draws: int) -> Sums:
    """With one set of draws; every batch has its own of it."""
    found = [_of_batch(trainable, batch, draws * len(batches) + place) for place, batch in enumerate(batches)]
    losses = to_host(trainable, [loss for loss, _ in found])
    return [(loss, count) for loss, (_, count) in zip(losses, found, strict=True)]


def _of_batch(trainable: Trainable, batch: Batch, draw: int) -> tuple[SupportsFloat, float]:
    if isinstance(trainable, EvaluatesDraws):
        return trainable.evaluate_draw(batch, draw)
    return trainable.evaluate(batch)


def _mean(sums: Sums) -> float:
    return sum(loss for loss, _ in sums) / sum(count for _, count in sums)


def _draws_sd(trainable: Trainable, batches: Sequence[Batch], fixed: Sums) -> float | None:
    """A loss that draws nothing has the same bits at every draw of its first batch, which is all that is tried then."""
    if not isinstance(trainable, EvaluatesDraws):
        return None
    loss, count = _of_batch(trainable, batches[0], len(batches))
    if (float(loss), count) == fixed[0]:
        return None
    return statistics.stdev([_mean(fixed), *(_mean(_sums(trainable, batches, draws)) for draws in range(1, DRAWS))])
