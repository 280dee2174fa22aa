"""Timed blocks of whole steps in another trainer's loop, which tells when a step has ended."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from batchlab.core.protocols import Interrupted, MemoryReading, RunContext, RunResult
from batchlab.core.record import Outcome, ThroughputResult
from batchlab.core.spec import ThroughputSpec
from batchlab.integrations.epochs import Epochs
from batchlab.runs.throughput import TIME_LIMIT, WARMUP_STEPS, OtherLoad


class BlockTimer:
    """Times blocks after WARMUP_STEPS and one step from which the length of a block is estimated.

    synchronize: waits for the device; called at the ends of blocks alone.
    """

    def __init__(
        self, spec: ThroughputSpec, context: RunContext, epochs: Epochs, synchronize: Callable[[], object]
    ) -> None:
        self._spec, self._context, self._epochs, self._synchronize = spec, context, epochs, synchronize
        self._made, self._started, self._from = time.monotonic(), 0.0, 0
        self._steps_per_block = 0
        self._warmup_seconds = 0.0
        self._timed: list[tuple[int, float]] = []  # tokens and seconds of each block
        self._load = OtherLoad()

    def step_ended(self, step: int) -> bool:
        """Take in the end of a step, counted from 1; whether enough was timed. Raises Interrupted."""
        if self._context.stop_requested():
            raise Interrupted
        if step == WARMUP_STEPS:
            self._begin(step)
            self._warmup_seconds = self._started - self._made
        elif step == WARMUP_STEPS + 1:
            estimate = self._now() - self._started
            self._steps_per_block = max(1, round(self._spec.block_seconds / max(estimate, 1e-9)))
            self._load = OtherLoad()
            self._begin(step)
        elif step > WARMUP_STEPS and step - self._from >= self._steps_per_block:
            return self._block_ended(step)
        return False

    def _block_ended(self, step: int) -> bool:
        seconds = self._now() - self._started
        samples = self._epochs.samples_after(step) - self._epochs.samples_after(self._from)
        tokens = samples * self._spec.layout.sequence_length
        self._timed.append((tokens, seconds))
        self._context.progress(len(self._timed), self._spec.repeats, 0, None, tokens / seconds)
        self._begin(step)
        late = self._started - self._made - self._warmup_seconds > TIME_LIMIT
        return late or len(self._timed) == self._spec.repeats

    def result(self, memory: MemoryReading) -> RunResult:
        """What was timed."""
        rates = tuple(tokens / seconds for tokens, seconds in self._timed)
        result = ThroughputResult(
            tokens_per_second=statistics.median(rates),
            tokens_per_second_blocks=rates,
            step_seconds=self._spec.layout.tokens_per_step / statistics.median(rates),
            warmup_seconds=self._warmup_seconds,
            other_load=self._load.share() if self._spec.device.name == "cpu" else None,
            peak_bytes=memory.peak_bytes,
            measured=memory.measured,
            peak_in_use_bytes=memory.peak_in_use_bytes,
        )
        return RunResult(Outcome.COMPLETED, "", result)

    def _begin(self, step: int) -> None:
        self._started, self._from = self._now(), step

    def _now(self) -> float:
        self._synchronize()
        return time.monotonic()
