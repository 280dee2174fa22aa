"""Measure tokens per second of one layout: whole optimizer steps, after warm-up, synchronised with the device.

Only the ends of a timed block wait for the device, so steps run as in a training run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import psutil

from batchlab.core.nvml import CardState
from batchlab.core.protocols import Interrupted, KnowsDevice, RunContext, RunResult, SharesSums, Trainable
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


ON_ACCELERATORS = ("cuda", "mps")
"""Devices that work while the host goes on, and whose clocks fall as they warm up."""

SETTLED = 0.01
"""An accelerator is timed until the last blocks are as fast as those before them, to this share."""

ISSUING_SAMPLES = 3

IDLE_SECONDS = 1.1
"""NVML's utilization is a mean over up to a second; so long this process leaves the card alone."""


class OtherLoad:
    """How much of the processor other programs used since this object was created.

    Two threads that wait for each other at every operation lose far more than that share: with 1.5 of two cores
    in use by others, a factor of 20 was measured.
    """

    def __init__(self) -> None:
        self._before = self._now()

    def share(self, ranks: Ranks = ALONE) -> float:
        """Between 0 and 1, of all cores. What the other ranks used is not others' use; every rank calls this."""
        (total, idle, own), (total_before, idle_before, own_before) = self._now(), self._before
        elapsed = total - total_before
        [used] = ranks.sum([own - own_before])
        others = elapsed - (idle - idle_before) - used
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
    """Time blocks of whole steps, each at least `spec.block_seconds` long: `spec.repeats` of them on a CPU, and on an
    accelerator as many more as it takes until the speed stops changing. The last `spec.repeats` are the result.

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

    settles = spec.device.name.partition(":")[0] in ON_ACCELERATORS
    load = OtherLoad() if spec.device.name == "cpu" else None
    seconds_per_step: list[float] = []
    step = WARMUP_STEPS + 1
    while len(seconds_per_step) < spec.repeats or (settles and not settled(seconds_per_step, spec.repeats)):
        if context.stop_requested():
            raise Interrupted
        started = trainable.synchronize()
        if seconds_per_step and _of_rank_0(started - warm, ranks) > TIME_LIMIT:
            break
        for _ in range(steps_per_block):
            one_step(trainable, stream, layout, step, LEARNING_RATE, ranks=ranks)
            step += 1
        seconds_per_step.append(_of_rank_0((trainable.synchronize() - started) / steps_per_block, ranks))
        blocks, rate = len(seconds_per_step), layout.tokens_per_step / seconds_per_step[-1]
        context.progress(blocks, max(blocks, spec.repeats), step * layout.tokens_per_step, None, rate)

    card = trainable.card_state() if isinstance(trainable, KnowsDevice) else CardState()
    used = load.share(ranks) if load else _used_by_others(trainable, card)
    stable = settled(seconds_per_step, spec.repeats) if settles else None
    issuing = _issuing_share(trainable, stream, spec, step, ranks) if settles else None
    kept = seconds_per_step[-spec.repeats :]
    rates = tuple(layout.tokens_per_step / seconds for seconds in kept)
    memory = largest(
        trainable.memory(), ranks
    )  # before the products that measure the peak, which are no part of training
    flops, peak = _flops(trainable, stream, spec)
    result = ThroughputResult(
        tokens_per_second=statistics.median(rates),
        tokens_per_second_blocks=rates,
        step_seconds=statistics.median(kept),
        warmup_seconds=warm - begun,
        stable=stable,
        other_load=used,
        clock_mhz=card.clock_mhz,
        issuing_share=issuing,
        flops_per_token=flops,
        peak_flops=peak,
        peak_bytes=memory.peak_bytes,
        measured=memory.measured,
        peak_in_use_bytes=memory.peak_in_use_bytes,
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _of_rank_0(seconds: float, ranks: Ranks) -> float:
    """A time that decides how long to go on, the same on every rank."""
    return ranks.sum([seconds if ranks.rank == 0 else 0.0])[0]


def settled(seconds_per_step: Sequence[float], blocks: int) -> bool:
    """Whether the last `blocks` took as long as those before them, by their medians."""
    if len(seconds_per_step) < 2 * blocks:
        return False
    last = statistics.median(seconds_per_step[-blocks:])
    before = statistics.median(seconds_per_step[-2 * blocks : -blocks])
    return abs(last - before) <= SETTLED * before


def _used_by_others(trainable: Trainable, card: CardState) -> float | None:
    """Share of its time in which a card works although this process leaves it idle; None where it does not tell."""
    if card.processes is None or not isinstance(trainable, KnowsDevice):
        return None
    if card.processes <= 1:
        return 0.0
    time.sleep(IDLE_SECONDS)
    return trainable.card_state().utilization


def _issuing_share(trainable: Trainable, stream: SampleStream, spec: ThroughputSpec, step: int, ranks: Ranks) -> float:
    """Of a step that begins on an idle device, the share of its time in which the host still gives it work.

    Near 1 the device has nothing left to do when the host is done: Python and the launching of kernels set the speed.
    A step of more than about ten times the 1,024 launches that a device queues has a large share in any case.
    """
    shares = []
    for number in range(ISSUING_SAMPLES):
        trainable.synchronize()
        started = time.perf_counter()
        one_step(trainable, stream, spec.layout, step + number, LEARNING_RATE, ranks=ranks)
        issued = time.perf_counter() - started
        trainable.synchronize()
        shares.append(min(1.0, issued / (time.perf_counter() - started)))
    return statistics.median(shares)


def _flops(trainable: Trainable, stream: SampleStream, spec: ThroughputSpec) -> tuple[float | None, float | None]:
    """(operations per token, the device's peak per second); None where they cannot be known."""
    if not isinstance(trainable, KnowsDevice):
        return None, None
    batch = stream.batch(0, spec.layout.micro_batch_size)
    try:
        operations = trainable.training_flops(batch)
    except Exception:  # noqa: BLE001 - a model may not bear being counted, or evaluated in what memory is left
        return None, trainable.peak_flops()
    return operations / (spec.layout.micro_batch_size * spec.workload.sequence_length), trainable.peak_flops()
