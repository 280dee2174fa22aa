"""Time sums over ranks against their size, over the backend that adds up gradients."""

from __future__ import annotations

import statistics

from batchlab.core.protocols import Interrupted, RunContext, RunResult, SharesSums, Trainable
from batchlab.core.ranks import Ranks
from batchlab.core.record import AllReduceResult, Outcome, SumTiming, WorkerDevice
from batchlab.core.spec import AllReduceSpec

SMALLEST, LEAST_LARGEST, FACTOR = 2**10, 2**18, 8
"""Bytes of the smallest sum, the least that the largest one has, and the step from one size to the next: both the
latency and the bandwidth show within this range."""

WARMUP_SUMS = 2
SIZE_SECONDS = 8.0
"""After which no further sum of a size begins."""


def time_sums(
    trainable: Trainable, spec: AllReduceSpec, context: RunContext, ranks: Ranks, device: WorkerDevice
) -> RunResult:
    """Time `spec.repeats` sums of each size. device: that of this rank.

    Raises Interrupted when any rank was asked to stop; OutOfMemory passes through.
    """
    assert isinstance(trainable, SharesSums)
    trainable.init(0)
    trainable.join(ranks)
    parts = tuple(trainable.sum_parts())
    sums = []
    sizes = sizes_up_to(sum(parts))
    for number, size in enumerate(sizes, 1):
        [stop] = ranks.sum([context.stop_requested()])
        if stop:
            raise Interrupted
        sums.append(SumTiming(size_bytes=size, seconds=_repeated(trainable, size, spec.repeats, ranks)))
        context.progress(number, len(sizes), 0, None, None)
    agreements = []
    for _ in range(spec.repeats):
        begun = trainable.synchronize()
        ranks.sum([0.0, 0.0, 0.0])
        agreements.append(trainable.synchronize() - begun)
    devices = tuple(WorkerDevice.model_validate_json(each) for each in ranks.gather(device.model_dump_json().encode()))
    result = AllReduceResult(
        devices=devices, sums=tuple(sums), parts=parts, agreement_seconds=statistics.median(agreements)
    )
    return RunResult(Outcome.COMPLETED, "", result)


def sizes_up_to(gradient_bytes: int) -> list[int]:
    """Sizes to time, ascending: from SMALLEST to that of all gradients, or to LEAST_LARGEST where that is more."""
    largest = max(gradient_bytes, LEAST_LARGEST)
    sizes, size = [], SMALLEST
    while size < largest:
        sizes.append(size)
        size *= FACTOR
    return sorted({*sizes, gradient_bytes, largest})


def _repeated(trainable: SharesSums, size: int, repeats: int, ranks: Ranks) -> tuple[float, ...]:
    """Seconds of each sum, as rank 0 measured them; its clock also decides how many there are."""
    for _ in range(WARMUP_SUMS):
        trainable.time_sum(size)
    seconds: list[float] = []
    while len(seconds) < repeats:
        seconds.append(trainable.time_sum(size))
        [spent] = ranks.sum([sum(seconds) if ranks.rank == 0 else 0.0])
        if spent > SIZE_SECONDS:
            break
    return tuple(seconds)
