"""One attempt at one run, in this process: execute the spec, turn the outcome into a record, write that last."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from batchlab.core.errors import InputError, RunFailure, StorageFailed, StudyChanged
from batchlab.core.files import Files
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import Interrupted, KilledFromOutside, Progress, RunResult
from batchlab.core.record import CapacityResult, Environment, Outcome, ProcessKind, Record, Result
from batchlab.core.spec import CapacitySpec, Spec
from batchlab.engines.command import BLOCKING
from batchlab.storage.files import DISK
from batchlab.storage.refused_write import as_refused_write
from batchlab.storage.run_folder import RunFolder


class LiveRun(RunFolder):
    """The folder of a run that this process executes, with its progress callback and its request to stop."""

    def __init__(
        self,
        study: Path,
        spec: Spec,
        show: Callable[[Progress], None],
        stop_requested: Callable[[], bool],
        files: Files = DISK,
    ) -> None:
        super().__init__(study, spec, files)
        self._show = show
        self._stop_requested = stop_requested

    def progress(
        self, step: int, steps: int, tokens: int, train_loss: float | None, tokens_per_second: float | None
    ) -> None:
        """Show how far the run is."""
        self._show(Progress(self.run_id, step, steps, tokens, train_loss, tokens_per_second))

    def stop_requested(self) -> bool:
        """True once the run was asked to stop."""
        return self._stop_requested()


class NeedsFreshProcess(Exception):
    """Out of memory in a process that had trained before, possibly because of what that left behind.

    Nothing is recorded; the run is repeated in a fresh process.
    """


class NeedsBlockingLaunches(Exception):
    """An assertion failed on the card, and torch noticed it later: the line it named is not the one that failed.

    Nothing is recorded; the run is repeated in a fresh process that waits for every kernel.
    """


_ASSERTED = "device-side assert triggered"


def run_attempt(run: LiveRun, *, attempt: int = 1, process: ProcessKind = "new", repeats: bool = False) -> Record:
    """Execute a run whose lock this process holds, and write its record.

    repeats: the caller can repeat it in another process.

    Running out of memory, divergence and errors of the person's code become
    the record's outcome. Raises, without a record: Interrupted (checkpoint saved), StorageFailed, NeedsFreshProcess,
    NeedsBlockingLaunches, and StudyChanged where the task or its data is not the study's any more.
    """
    run.begin()
    ended = _execute(run)
    if ended.outcome is Outcome.OUT_OF_MEMORY and process == "used":
        raise NeedsFreshProcess
    if repeats and _asserted(ended) and not os.environ.items() >= BLOCKING.items():
        raise NeedsBlockingLaunches
    record = Record(
        run_id=run.run_id,
        outcome=ended.outcome,
        reason=ended.reason,
        result=ended.result,
        environment=ended.environment or _environment(run),
        process=process,
        pairing=ended.pairing,
        attempts=attempt,
    )
    run.finish(record)
    return record


def _asserted(ended: RunResult) -> bool:
    return ended.outcome is Outcome.FAILED and _ASSERTED in ended.reason


def result_of_out_of_memory(spec: Spec, *, certain: bool = True) -> Result | None:
    """The result of a run that ran out of memory, or possibly did: a capacity probe records that it does not fit."""
    return (
        CapacityResult(micro_batch_size=spec.micro_batch_size, fits=False, certain=certain)
        if isinstance(spec, CapacitySpec)
        else None
    )


def _execute(run: LiveRun) -> RunResult:
    """The run's result, whatever happened in it; when this returns, everything the run allocated is freed."""
    from batchlab.integrations import integration_of
    from batchlab.runs.execute import execute

    try:
        integration = integration_of(run.spec)
        return execute(run.spec, run) if integration is None else integration.run(run.spec, run)
    except (Interrupted, KilledFromOutside, StorageFailed, StudyChanged):
        raise
    except (InputError, RunFailure) as error:
        return RunResult(Outcome.FAILED, str(error), None)
    except (Exception, SystemExit) as error:  # no error of a run may end the study
        memory = as_out_of_memory(error)
        if memory is not None:
            reason = str(memory) or "Out of memory."
            return RunResult(Outcome.OUT_OF_MEMORY, reason, result_of_out_of_memory(run.spec, certain=memory.certain))
        failure = as_refused_write(error, run.path)
        if failure is not None:
            raise failure from error
        run.log("".join(traceback.format_exception(error)))
        return RunResult(Outcome.FAILED, describe_error(error, Path(run.spec.workload.task.target)), None)


def describe_error(error: BaseException, file: Path) -> str:
    """`Type: text (line 12 of mine.py)`: the innermost line of the person's file, else of any code not installed."""
    text = " ".join(str(error).split())[:500]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).name == file.name]
    foreign = [frame for frame in frames if not _is_installed(frame.filename)]
    frame = next(iter([*own[::-1], *foreign[::-1]]), None)
    where = f" (line {frame.lineno} of {Path(frame.filename).name})" if frame else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def _is_installed(filename: str) -> bool:
    path = Path(filename)
    batchlab = Path(__file__).parents[1]
    return path.is_relative_to(batchlab) or path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix)


def _environment(run: LiveRun) -> Environment | None:
    """None where the task cannot be loaded or no memory is left; the record's reason then says so."""
    from batchlab.runs.execute import environment

    try:
        return environment(run.spec)
    except (InputError, MemoryError):
        return None
