"""Measure tokens per second of one layout: whole optimizer steps, after warm-up, synchronised with the device.

Only the ends of a timed block wait for the device, so steps run as in a training run.
"""

from __future__ import annotations

import statistics

import psutil

from batchlab.core.protocols import Interrupted, RunContext, RunResult, SharesSums, Trainable
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.record import Outcome, ThroughputResult
from batchlab.core.spec import ThroughputSpec
from batchlab.data.stream import SampleStream
from batchlab.runs.memory import largest
from batchlab.runs.step import one_step

WARMUP_STEPS = 3
"""The first step allocates the optimizer's state; the second and third let allocators and kernel choices settle."""

LEARNING_RATE = 1e-6
"""Small enough that weights stay in the range in which arithmetic runs at its normal speed."""

TIME_LIMIT = 60.0
"""Seconds of the device's clock after which no further block begins: on a busy machine a block can take minutes."""


class OtherLoad:
    """How much of the processor other programs used since this object was created.

    Two threads that wait for each other at every operation lose far more than that share: with 1.5 of two cores
    in use by others, a factor of 20 was measured.
    """

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        """Between 0 and 1, of all cores."""
        (total, idle, own), (total_before, idle_before, own_before) = self._now(), self._before
        elapsed = total - total_before
        others = elapsed - (idle - idle_before) - (own - own_before)
        return min(1.0, max(0.0, others / elapsed)) if elapsed > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """(all time, idle time, this process's time) in core-seconds."""
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already in user and nice
        return sum(times) - guests, idle, own.user + own.system


def measure(
    trainable: Trainable, stream: SampleStream, spec: ThroughputSpec, context: RunContext, ranks: Ranks = ALONE
) -> RunResult:
    """Time `spec.repeats` blocks of whole steps, each at least `spec.block_seconds` long.

    Raises Interrupted when asked to stop; OutOfMemory passes through.
    """
    layout = spec.layout
    begun = trainable.synchronize()
    trainable.init(0)
    if ranks.size > 1:
        assert isinstance(trainable, SharesSums)
        trainable.join(ranks)
    for step in range(WARMUP_STEPS):
        one_step(trainable, stream, layout, step, LEARNING_RATE, ranks=ranks)
    warm = trainable.synchronize()
    one_step(trainable, stream, layout, WARMUP_STEPS, LEARNING_RATE, ranks=ranks)
    estimate = _of_rank_0(trainable.synchronize() - warm, ranks)
    steps_per_block = max(1, round(spec.block_seconds / max(estimate, 1e-9)))

    load = OtherLoad() if spec.device.name == "cpu" else None
    seconds_per_step = []
    step = WARMUP_STEPS + 1
    for block in range(spec.repeats):
        if context.stop_requested():
            raise Interrupted
        started = trainable.synchronize()
        if block and _of_rank_0(started - warm, ranks) > TIME_LIMIT:
            break
        for _ in range(steps_per_block):
            one_step(trainable, stream, layout, step, LEARNING_RATE, ranks=ranks)
            step += 1
        seconds_per_step.append((trainable.synchronize() - started) / steps_per_block)
        rate = layout.tokens_per_step / seconds_per_step[-1]
        context.progress(block + 1, spec.repeats, step * layout.tokens_per_step, None, rate)

    rates = tuple(layout.tokens_per_step / seconds for seconds in seconds_per_step)
    memory = largest(trainable.memory(), ranks)
    result = ThroughputResult(
        tokens_per_second=statistics.median(rates),
        tokens_per_second_blocks=rates,
        step_seconds=statistics.median(seconds_per_step),
        warmup_seconds=warm - begun,
        other_load=load.share() if load else None,
        peak_bytes=memory.peak_bytes,
        measured=memory.measured,
        peak_in_use_bytes=memory.peak_in_use_bytes,
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _of_rank_0(seconds: float, ranks: Ranks) -> float:
    """A time that decides how long to go on, the same on every rank."""
    return ranks.sum([seconds if ranks.rank == 0 else 0.0])[0]
