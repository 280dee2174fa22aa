"""What the death of a worker process shows about the run it had: an outcome, or nothing."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from batchlab.core.errors import RunFailure, WorkerLost
from batchlab.core.out_of_memory import Evidence, evidence_of
from batchlab.core.protocols import RunResult
from batchlab.core.record import Outcome
from batchlab.core.spec import CapacitySpec, CheckSpec, InspectSpec, Spec, TraceSpec, TrainSpec, run_id
from batchlab.engines.attempt import result_of_out_of_memory

_OWN_SIGNALS = {
    signal.SIGABRT,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
}
"""Signals that code brings upon its own process; every other one is sent from outside."""

_MEMORY_SIGNALS = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS}
"""Those that a failed allocation in native code causes."""

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended that had a run.

    began: it had started the run. relayed: a launcher reports the exit code. oom_kills: processes that the system
    killed for lack of memory around that time. log: the end of the run's log. errors: what the worker or its launcher
    wrote to standard error.
    """

    exit_code: int
    began: bool = True
    relayed: bool = False
    oom_kills: int = 0
    log: str = ""
    errors: str = ""

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended it; a launcher or shell adds 128 to its number."""
        number = -self.exit_code if self.exit_code < 0 else self.exit_code - 128 if self.relayed else 0
        return signal.Signals(number) if number in set(signal.Signals) else None

    @property
    def by_own_code(self) -> bool:
        """Whether the run's own code ended the process, as far as that shows."""
        if not self.began:
            return False
        if self.signal is not None:
            return self.signal in _OWN_SIGNALS
        return not self.relayed

    @property
    def evidence(self) -> Evidence | None:
        """What shows that memory ran out. A process that was killed could not say so itself."""
        if not self.began:
            return None
        killed = self.signal == signal.SIGKILL or (self.relayed and not self.by_own_code)
        found = evidence_of(self.errors, oom_kills=self.oom_kills if killed else 0)
        return found or (evidence_of(self.log) if self.by_own_code else None)

    @property
    def how(self) -> str:
        return f"by {self.signal.name}" if self.signal is not None else f"with exit code {self.exit_code}"

    @property
    def last_output(self) -> str:
        return one_line(self.log) or one_line(self.errors)


def result_of(spec: Spec, death: Death, deaths: int) -> RunResult | None:
    """How a run counts whose process died `deaths` times, the last time like this; None: it says nothing about the run.

    A crash that a failed allocation may cause in native code counts as possibly out of memory where memory is bounded,
    and for every capacity probe. A process that was killed from outside, without evidence that memory was the reason,
    says nothing about the run.
    """
    evidence, fatal = death.evidence, fatal_error(death.log, Path(spec.workload.task.target))
    detail = f" {fatal}." if fatal else ""
    if evidence is Evidence.KILLED:
        failure = RunFailure(f"The system ran out of memory and killed its process ({death.how}).{detail}")
        return _out_of_memory(spec, failure, certain=False)  # other programs may have taken the memory
    if evidence is Evidence.ALLOCATION_FAILED:
        return _out_of_memory(spec, RunFailure(f"Its process ended {death.how}, out of memory.{detail}"), certain=True)
    if not death.by_own_code:
        return None
    if _measures_memory(spec) and (evidence is Evidence.AMBIGUOUS or death.signal in _MEMORY_SIGNALS):
        failure = RunFailure(f"Its process ended {death.how}, possibly out of memory.{detail}")
        return _out_of_memory(spec, failure, certain=False)
    times = f", {deaths} times" if deaths > 1 else ""
    last = detail or (f" Last output: {death.last_output}" if death.last_output else "")
    return RunResult(Outcome.FAILED, str(RunFailure(f"Its process ended {death.how}{times}.{last}")), None)


def _out_of_memory(spec: Spec, failure: RunFailure, *, certain: bool) -> RunResult:
    return RunResult(Outcome.OUT_OF_MEMORY, str(failure), result_of_out_of_memory(spec, certain=certain))


def failure_of_silence(seconds: float, output: str) -> RunFailure:
    """A run was ended after `seconds` without a sign of life."""
    last = f" Last output: {output}" if output else ""
    return RunFailure(f"It gave no sign of life for {seconds:g} seconds (device.silence_seconds) and was ended.{last}")


def lost_to(spec: Spec, death: Death, times: int) -> WorkerLost:
    """Nothing is known about a run, because its process died so many times for reasons that are not its own."""
    if not death.began:
        last = f" It said: {one_line(death.errors)}" if one_line(death.errors) else ""
        return WorkerLost(
            f"A worker process could not be started: it ended {death.how}, {times} times.{last} Finished runs are "
            "kept; run the same command again to continue."
        )
    return WorkerLost(
        f"The process of {run_id(spec)} was ended from outside ({death.how}) {times} times, and nothing shows that "
        "memory was the reason, so nothing is recorded for it. Finished runs are kept; run the same command again to "
        "continue."
    )


def lost_to_protocol(spec: Spec, problem: str, times: int) -> WorkerLost:
    """The worker of a run did not keep to its protocol so many times."""
    return WorkerLost(
        f"The process of {run_id(spec)} {problem}, {times} times, so nothing is recorded for it. Finished runs are "
        "kept; run the same command again to continue."
    )


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


def one_line(text: str, characters: int = 400) -> str:
    """The end of what a process printed, in one line."""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-characters:]


def _measures_memory(spec: Spec) -> bool:
    if isinstance(spec, CapacitySpec):
        return True
    return spec.device.memory_limit is not None and not isinstance(
        spec, CheckSpec | InspectSpec | TraceSpec | TrainSpec
    )
