"""Measure tokens per second of one layout: whole optimizer steps, after warm-up, the device waited for.

Only the ends of a timed block wait for the device, so the blocks run as a real training run does.
"""

from __future__ import annotations

import statistics

from batchlab.data.stream import SampleStream
from batchlab.protocols import Ended, Interrupted, RunContext, Trainable
from batchlab.record import Outcome, ThroughputResult
from batchlab.runs.train import one_step
from batchlab.spec import ThroughputSpec

WARMUP_STEPS = 3
"""The first step allocates the optimizer's state, the second and third settle allocators and kernel choices."""

LEARNING_RATE = 1e-6
"""Small enough that no weights leave the range in which arithmetic runs at its normal speed."""


def measure(trainable: Trainable, stream: SampleStream, spec: ThroughputSpec, context: RunContext) -> Ended:
    """Time `spec.repeats` blocks of whole steps, each at least `spec.block_seconds` long.

    Raises Interrupted when asked to stop, and lets OutOfMemory through.
    """
    layout = spec.layout
    begun = trainable.synchronize()
    trainable.init(0)
    for step in range(WARMUP_STEPS):
        one_step(trainable, stream, layout, step, LEARNING_RATE)
    warm = trainable.synchronize()
    one_step(trainable, stream, layout, WARMUP_STEPS, LEARNING_RATE)
    estimate = trainable.synchronize() - warm
    steps_per_block = max(1, round(spec.block_seconds / max(estimate, 1e-9)))

    seconds_per_step = []
    step = WARMUP_STEPS + 1
    for block in range(spec.repeats):
        if context.stop_requested():
            raise Interrupted
        started = trainable.synchronize()
        for _ in range(steps_per_block):
            one_step(trainable, stream, layout, step, LEARNING_RATE)
            step += 1
        seconds_per_step.append((trainable.synchronize() - started) / steps_per_block)
        rate = layout.tokens_per_step / seconds_per_step[-1]
        context.progress(block + 1, spec.repeats, step * layout.tokens_per_step, None, rate)

    rates = tuple(layout.tokens_per_step / seconds for seconds in seconds_per_step)
    memory = trainable.memory()
    result = ThroughputResult(
        tokens_per_second=statistics.median(rates),
        tokens_per_second_blocks=rates,
        step_seconds=statistics.median(seconds_per_step),
        warmup_seconds=warm - begun,
        peak_allocated_bytes=memory.peak_allocated_bytes,
        peak_reserved_bytes=memory.peak_reserved_bytes,
    )
    return Ended(Outcome.COMPLETED, "", result)
