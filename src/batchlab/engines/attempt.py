"""One attempt at one run, in this process: execute the spec, turn whatever happens into a record, write it last."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from batchlab.core.errors import InputError, StorageFailed
from batchlab.core.protocols import Interrupted, OutOfMemory, Progress, RunResult
from batchlab.core.record import CapacityResult, Environment, Outcome, Record, Result
from batchlab.core.spec import CapacitySpec, Spec, TrainSpec
from batchlab.storage.atomic import storage_failure
from batchlab.storage.run_folder import RunFolder


class LiveRun(RunFolder):
    """A run's folder with the two things only a live process has: somebody watching, and somebody who may say stop."""

    def __init__(
        self, study: Path, spec: Spec, show: Callable[[Progress], None], stop_requested: Callable[[], bool]
    ) -> None:
        super().__init__(study, spec)
        self._show = show
        self._stop_requested = stop_requested

    def progress(self, step: int, steps: int, tokens: int, loss: float | None, tokens_per_second: float | None) -> None:
        """Show a sign of life."""
        self._show(Progress(self.run_id, step, steps, tokens, loss, tokens_per_second))

    def stop_requested(self) -> bool:
        """True from the moment somebody asked the run to stop."""
        return self._stop_requested()


class TryFresh(Exception):
    """Out of memory in a process that had trained before: what it left behind may be to blame, so nothing is recorded
    and the run is to be tried in a fresh process."""


def carry_out(run: LiveRun, *, attempt: int = 1, reused: bool = False) -> Record:
    """Execute a run whose lock this process holds, and write its record.

    `reused`: the process trained something before. Running out of memory, diverging and errors of the person's code
    become the record's outcome. Raises Interrupted (checkpoint saved, no record), StorageFailed and TryFresh.
    """
    spec = run.spec
    run.begin()
    ended = _end(run)
    if ended.outcome is Outcome.OUT_OF_MEMORY and reused:
        raise TryFresh
    record = Record(
        run_id=run.run_id,
        outcome=ended.outcome,
        reason=ended.reason,
        result=ended.result,
        environment=_environment(run),
        pairing="verified" if isinstance(spec, TrainSpec) else "none",
        attempts=attempt,
    )
    run.finish(record)
    return record


def did_not_fit(spec: Spec, *, certain: bool = True) -> Result | None:
    """What a run that ran out of memory, or perhaps did, has to show for it."""
    return (
        CapacityResult(micro_batch_size=spec.micro_batch_size, fits=False, certain=certain)
        if isinstance(spec, CapacitySpec)
        else None
    )


def _end(run: LiveRun) -> RunResult:
    """Everything the run allocated is free again when this returns."""
    from batchlab.runs.execute import execute

    try:
        return execute(run.spec, run)
    except (OutOfMemory, MemoryError) as error:
        certain = not isinstance(error, OutOfMemory) or error.certain
        reason = str(error) or "The device has no more memory."
        return RunResult(Outcome.OUT_OF_MEMORY, reason, did_not_fit(run.spec, certain=certain))
    except InputError as error:
        return RunResult(Outcome.FAILED, str(error), None)
    except (Interrupted, StorageFailed):
        raise
    except (Exception, SystemExit) as error:  # whatever it is, it must not end a study
        failure = storage_failure(error, run.path) if isinstance(error, OSError) else None
        if failure is not None:
            raise failure from error
        run.log("".join(traceback.format_exception(error)))
        return RunResult(Outcome.FAILED, describe(error, Path(run.spec.workload.task.target)), None)


def describe(error: BaseException, file: Path) -> str:
    """`Type: text (line 12 of mine.py)`: the innermost line of the person's own file, else of code that is not ours."""
    text = " ".join(str(error).split())[:500]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).name == file.name]
    foreign = [frame for frame in frames if not _is_installed(frame.filename)]
    frame = next(iter([*own[::-1], *foreign[::-1]]), None)
    where = f" (line {frame.lineno} of {Path(frame.filename).name})" if frame else ""
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def _is_installed(filename: str) -> bool:
    path = Path(filename)
    ours = Path(__file__).parents[1]
    return path.is_relative_to(ours) or path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix)


def _environment(run: LiveRun) -> Environment | None:
    """None where the task cannot even be loaded or no byte is left; the record's reason says so."""
    from batchlab.runs.execute import environment

    try:
        return environment(run.spec, run.cache_dir)
    except (InputError, MemoryError):
        return None
