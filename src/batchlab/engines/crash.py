"""Why a worker process died while it had a run, as far as its exit code and the run's log show."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from batchlab.core.errors import RunFailure
from batchlab.core.record import Outcome
from batchlab.core.spec import CapacitySpec, CheckSpec, InspectSpec, Spec, TraceSpec, TrainSpec

_MEMORY_SIGNALS = {-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS}
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)


def failure_of_death(spec: Spec, exit_code: int, deaths: int, fatal: str, output: str) -> tuple[Outcome, RunFailure]:
    """How a run counts whose process died `deaths` times, the last time with `exit_code`, and why.

    A signal that memory pressure causes counts as out of memory for a measurement with a memory limit, and for every
    capacity probe. `fatal`: what `fatal_error` found; `output`: the end of what the process printed.
    """
    how = f"by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"with exit code {exit_code}"
    if exit_code in _MEMORY_SIGNALS and _measures_memory(spec):
        crash = f" {fatal}." if fatal else ""
        if exit_code == -signal.SIGKILL:
            return Outcome.OUT_OF_MEMORY, RunFailure(
                f"Its process was killed by the system ({how}), most likely for memory.{crash}"
            )
        return Outcome.OUT_OF_MEMORY, RunFailure(f"Its process ended {how}, possibly out of memory.{crash}")
    times = f", {deaths} times" if deaths > 1 else ""
    memory = "; memory is the usual cause" if exit_code == -signal.SIGKILL else ""
    last = f" {fatal}." if fatal else f" Last output: {output}" if output else ""
    return Outcome.FAILED, RunFailure(f"Its process ended {how}{times}{memory}.{last}")


def failure_of_silence(seconds: float, output: str) -> RunFailure:
    """A run was ended after `seconds` without a sign of life."""
    last = f" Last output: {output}" if output else ""
    return RunFailure(f"It gave no sign of life for {seconds:g} seconds (device.silence_seconds) and was ended.{last}")


def fatal_error(log: str, file: Path) -> str:
    """What Python's fault handler wrote into a log: `Fatal Python error: Aborted (line 12 of mine.py)`.

    The last such error, with the innermost line of the person's file in the thread that died; empty where there is
    none.
    """
    _, mark, dump = log.rpartition("Fatal Python error: ")
    if not mark:
        return ""
    name = dump.splitlines()[0]
    died = dump.partition("Current thread")[2].partition("\n\n")[0]
    line = next((frame["line"] for frame in _FRAME.finditer(died) if Path(frame["file"]).name == file.name), None)
    return f"{mark}{name}" + (f" (line {line} of {file.name})" if line else "")


def _measures_memory(spec: Spec) -> bool:
    if isinstance(spec, CapacitySpec):
        return True
    return spec.device.memory_limit is not None and not isinstance(
        spec, CheckSpec | InspectSpec | TraceSpec | TrainSpec
    )
