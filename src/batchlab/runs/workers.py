"""Time the devices that are to share a batch: all at once, each with its own share, and without communication.

What they lose to each other otherwise, memory bandwidth or a shared disk, is part of the times, as it is in training.
"""

from __future__ import annotations

import json
import statistics

from batchlab.core.batch import BatchLayout
from batchlab.core.protocols import Batch, Interrupted, RunContext, RunResult, Trainable
from batchlab.core.ranks import Ranks
from batchlab.core.record import Outcome, WorkersResult, WorkerTiming
from batchlab.core.spec import WorkersSpec
from batchlab.data.stream import SampleStream
from batchlab.runs.step import one_step
from batchlab.runs.throughput import LEARNING_RATE, TIME_LIMIT, WARMUP_STEPS, OtherLoad

PASSES = 5
"""Timed passes over the last micro-batch, and evaluations of it."""


class HeldStream(SampleStream):
    """A stream whose first samples come again in every step, prepared once."""

    def __init__(self, stream: SampleStream) -> None:
        super().__init__(stream.dataset, stream.seed)
        self._held: dict[int, Batch] = {}

    def batch(self, start: int, stop: int) -> Batch:
        """The first stop − start samples."""
        size = stop - start
        if size not in self._held:
            self._held[size] = super().batch(0, size)
        return self._held[size]


def time_workers(
    trainable: Trainable, stream: SampleStream, spec: WorkersSpec, context: RunContext, ranks: Ranks
) -> RunResult:
    """Time blocks of this rank's own steps, each begun with those of the others and about as long.

    Raises Interrupted when any rank was asked to stop; OutOfMemory passes through.
    """
    own = share_alone(spec.layout, ranks.rank)
    held = HeldStream(stream)
    trainable.init(0)
    for step in range(WARMUP_STEPS):
        one_step(trainable, stream, own, step, LEARNING_RATE)
    begun = trainable.synchronize()
    one_step(trainable, stream, own, WARMUP_STEPS, LEARNING_RATE)
    estimate = trainable.synchronize() - begun
    longest = max(json.loads(content) for content in ranks.gather(json.dumps(estimate).encode()))
    steps = max(1, round(max(spec.block_seconds, longest) / max(estimate, 1e-9)))
    blocks = min(spec.repeats, max(1, round(TIME_LIMIT / (2 * max(spec.block_seconds, longest)))))

    load = OtherLoad() if spec.device.name == "cpu" else None
    fresh_seconds: list[float] = []
    held_seconds: list[float] = []
    step = WARMUP_STEPS + 1
    for block in range(blocks):
        for source, seconds in ((stream, fresh_seconds), (held, held_seconds)):
            [stop] = ranks.sum([context.stop_requested()])  # all begin together
            if stop:
                raise Interrupted
            begun = trainable.synchronize()
            for _ in range(steps):
                one_step(trainable, source, own, step, LEARNING_RATE)
                step += 1
            seconds.append((trainable.synchronize() - begun) / steps)
        context.progress(block + 1, blocks, step * own.tokens_per_step, None, own.tokens_per_step / fresh_seconds[-1])
    used = load.share(ranks) if load else None
    pass_seconds, forward_seconds = _time_passes(trainable, held.batch(0, own.micro_batch_sizes()[-1]))
    memory = trainable.memory()
    timing = WorkerTiming(
        share=own.global_batch_size,
        step_seconds=tuple(fresh_seconds),
        held_step_seconds=tuple(held_seconds),
        pass_seconds=pass_seconds,
        forward_seconds=forward_seconds,
        peak_bytes=memory.peak_bytes,
        measured=memory.measured,
        peak_in_use_bytes=memory.peak_in_use_bytes,
    )
    found = ranks.gather(timing.model_dump_json().encode())
    workers = tuple(WorkerTiming.model_validate_json(content) for content in found)
    return RunResult(Outcome.COMPLETED, "", WorkersResult(workers=workers, other_load=used))


def share_alone(layout: BatchLayout, rank: int) -> BatchLayout:
    """A device's share of a batch as a batch of its own, in the same micro-batches."""
    share = layout.share(rank)
    return BatchLayout(
        global_batch_size=share,
        micro_batch_size=min(layout.micro_batch_size, share),
        sequence_length=layout.sequence_length,
    )


def _time_passes(trainable: Trainable, batch: Batch) -> tuple[float, float]:
    """(seconds of a forward and backward pass, seconds of a forward pass): medians.

    A compiled model is evaluated uncompiled, so that its forward pass seems longer than it is in training.
    """
    whole, forward = [], []
    weight = 1.0 / trainable.count(batch)
    for _ in range(PASSES):
        begun = trainable.synchronize()
        trainable.accumulate(batch, weight)
        passed = trainable.synchronize()
        trainable.apply(LEARNING_RATE)
        applied = trainable.synchronize()
        trainable.evaluate(batch)
        whole.append(passed - begun)
        forward.append(trainable.synchronize() - applied)
    return statistics.median(whole), statistics.median(forward)
