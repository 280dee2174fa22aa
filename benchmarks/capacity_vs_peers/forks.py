"""An engine whose runs are forks of this process, which has imported torch: a fresh process without its start."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path

from batchlab.core.protocols import Event, Finished, OutOfMemory
from batchlab.core.record import Outcome
from batchlab.core.spec import CapacitySpec, Spec
from batchlab.engines.attempt import LiveRun
from batchlab.engines.inline import InlineEngine
from batchlab.runs import execute

FITS, FAILED = 0, 3


class ForkEngine:
    """An Engine: each spec is executed in a fork, which writes its record to the study."""

    def __init__(self, study: Path) -> None:
        self._study = study
        self._waiting: deque[Spec] = deque()

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Queue a spec; every one runs alone."""
        self._waiting.append(spec)

    def wait(self, timeout: float) -> list[Event]:
        """Execute the next spec."""
        if not self._waiting:
            return []
        spec = self._waiting.popleft()
        code = in_fork(lambda: self._execute(spec))
        record = LiveRun(self._study, spec, lambda _: None, lambda: False).record()
        if record is None:
            raise SystemExit(f"the process of {spec.kind} ended with {code} and left no record")
        return [Finished(spec, record)]

    def close(self) -> None:
        """Nothing is kept running."""
        self._waiting.clear()

    def _execute(self, spec: Spec) -> int:
        inline = InlineEngine(self._study)
        inline.submit(spec)
        while not any(isinstance(event, Finished) for event in inline.wait(1.0)):
            pass
        return FITS


def in_fork(act: Callable[[], int]) -> int:
    """The exit status of a fork of this process that calls `act` and ends with what it returns; −9 for SIGKILL."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os._exit(act())
        except BaseException:  # noqa: BLE001 - a fork must not return into the code of its parent
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class _Silent:
    """The part of a run's context that a probe uses."""

    cache_dir = Path()

    def progress(self, *_: object) -> None:
        """Nothing is shown."""


def true_size(spec: CapacitySpec, guess: int, resolution: float = 0.0) -> int:
    """The largest size that fits in one process: warmed up and bounded as batchlab's workers are.

    Every size is tried in a fork of that process, so that all start from the same memory. resolution: the answer may be
    this share too small.
    """
    reading, writing = os.pipe()

    def search() -> int:
        loaded = execute._load(spec.workload, Path())
        loaded.framework.start(spec.device, seed=0)
        # The same warm-up batch as that of a probe: what it leaves free in the heap is part of the baseline.
        until = spec.micro_batch_size * spec.grad_accum_steps if spec.draws else None
        execute._bound_memory(spec, loaded, execute.WorstStream(loaded.train, seed=0, worst_until=until))
        found = largest(lambda size: in_fork(lambda: _try(spec, size)) == FITS, guess, resolution)
        os.write(writing, str(found).encode())
        return 0

    code = in_fork(search)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    if code:
        raise SystemExit(f"the search for the true size ended with {code}")
    return int(text)


def _try(spec: CapacitySpec, size: int) -> int:
    try:
        tried = spec.model_copy(update={"micro_batch_size": size, "evaluation_batch_size": size})
        return FITS if execute.execute(tried, _Silent()).outcome is Outcome.COMPLETED else FAILED
    except (OutOfMemory, MemoryError, RuntimeError) as error:
        if not isinstance(error, OutOfMemory | MemoryError) and "memory" not in str(error):
            print(f"size {size}: {error}", file=sys.stderr)
        return FAILED


def largest(holds: Callable[[int], bool], guess: int, resolution: float = 0.0) -> int:
    """The largest size that holds, bracketed from a guess in growing steps, then by bisection; 0: none."""
    step = math.ceil(resolution * guess) or 1
    if holds(guess):
        passed = guess
        while holds(passed + step):
            passed, step = passed + step, 2 * step
        failed = passed + step
    else:
        failed = guess
        while failed > step and not holds(failed - step):
            failed, step = failed - step, 2 * step
        passed = max(failed - step, 0)
    while failed - passed > max(1, math.ceil(resolution * passed)):
        middle = (passed + failed) // 2
        passed, failed = (middle, failed) if holds(middle) else (passed, middle)
    return passed
