"""Contract test for SharesSums: any split of a batch over ranks trains the same model as one rank does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate as running_sums
from itertools import pairwise

import numpy as np

from batchlab.core.nested import select
from batchlab.core.protocols import Batch, Inspectable, SharesSums, Trainable
from batchlab.core.ranks import ALONE, Ranks
from batchlab.testing.requirement import require

STEPS = 50


def check_shared_sums(
    make: Callable[[], Trainable],
    batches: Callable[[int], Batch],
    shares: Sequence[Sequence[int]],
    ranks: Ranks,
    *,
    learning_rate: float = 1e-2,
    tolerance: float = 1e-9,
) -> None:
    """Train 50 steps on these ranks, and on one alone, and compare losses, norms and parameters.

    To be called on every rank, with equal arguments. batches: step → the whole batch of that step. shares: the sizes of
    the micro-batches of each rank; they add up to the size of the batch. tolerance: relative; 1e-9 suits float64, 1e-4
    float32. Raises AssertionError on every rank.
    """
    shared, alone = (
        _train(make(), batches, split, on, learning_rate) for split, on in ((shares, ranks), (_whole(shares), ALONE))
    )
    if ranks.size > 1:
        _check_timed_sums(make(), ranks)
    for step, (one, other) in enumerate(zip(shared, alone, strict=True), 1):
        for name, value, expected in zip(("loss", "gradient norm", "clipped"), one, other, strict=True):
            require(
                bool(np.isclose(value, expected, rtol=tolerance, atol=0.0)),
                f"on {ranks.size} ranks with the shares {shares}, the {name} of step {step} is {value!r}; on one rank "
                f"it is {expected!r}",
            )


def _check_timed_sums(trainable: Trainable, ranks: Ranks) -> None:
    assert isinstance(trainable, SharesSums)
    trainable.init(3)
    trainable.join(ranks)
    parts = trainable.sum_parts()
    require(bool(parts) and min(parts) > 0, f"sum_parts gives {parts!r}; it is the bytes of each sum of a step")
    begun = trainable.synchronize()
    seconds = trainable.time_sum(sum(parts))
    elapsed = trainable.synchronize() - begun
    require(0 <= seconds <= elapsed * (1 + 1e-9) + 1e-9, f"time_sum gives {seconds!r} s of {elapsed!r} s that it took")


def _whole(shares: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[sum(map(sum, shares))]]


def _train(
    trainable: Trainable, batches: Callable[[int], Batch], shares: Sequence[Sequence[int]], ranks: Ranks, rate: float
) -> list[tuple[float, float, float]]:
    """Loss, norm and clipping of each step, and the norms of the parameters and the held-out loss at the end."""
    trainable.init(3)
    if isinstance(trainable, Inspectable):
        trainable.without_randomness()
    if ranks.size > 1:
        assert isinstance(trainable, SharesSums), f"{type(trainable).__name__} has no join, so it knows one rank only"
        trainable.join(ranks)
    begin = sum(map(sum, shares[: ranks.rank]))
    ends = list(running_sums(shares[ranks.rank], initial=begin))
    seen = []
    for step in range(STEPS):
        batch = batches(step)
        own = [select(batch, slice(start, stop)) for start, stop in pairwise(ends)]
        [count] = ranks.sum([sum(trainable.count(part) for part in own)])
        for part in own[:-1]:
            trainable.accumulate(part, 1.0 / count)
        if ranks.size > 1:
            assert isinstance(trainable, SharesSums)
            trainable.accumulate_last(own[-1], 1.0 / count)
        else:
            trainable.accumulate(own[-1], 1.0 / count)
        stats = trainable.apply(rate)
        seen.append((float(stats.loss), float(stats.grad_norm), float(stats.clipped)))
    if isinstance(trainable, Inspectable):
        for name, value in trainable.parameters().items():
            norm = float(np.linalg.norm(value.astype(np.float64)))
            seen.append((norm, norm, 0.0))
            same = ranks.sum([norm])[0] == norm * ranks.size if ranks.size & (ranks.size - 1) == 0 else True
            require(same, f"the parameter {name} differs between ranks")
    total, targets = trainable.evaluate(batches(0))
    return [*seen, (float(total) / targets, 0.0, 0.0)]
