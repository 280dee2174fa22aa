"""Workers without processes: scripts under a clock that only moves when somebody waits.

A script is called with a worker and the run it was given, and says what the worker does, now or later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from batchlab.core.files import Files
from batchlab.core.protocols import Event, Finished
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import SPEC, CapacitySpec, Spec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.dispatcher import Dispatcher
from batchlab.engines.hosts import Host, this_machine
from batchlab.engines.pool import Pool
from batchlab.storage.files import DISK
from batchlab.storage.run_folder import RunFolder

Script = Callable[["ScriptedWorker", Spec], None]


class ManualClock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class ScriptedWorker:
    """A `core.worker.WorkerProcess` that does what its script says."""

    def __init__(self, processes: ScriptedProcesses, command: WorkerCommand, number: int) -> None:
        self.command = command
        self.number = number
        self.run: Spec | None = None
        self.ended: int | None = None
        self.released = False
        self.printed = ""
        self._processes = processes
        self._output = b""
        self._input_ended = False
        self._due: list[tuple[float, Callable[[], None]]] = []

    # What a script may do.

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something in a while, unless it has died by then."""
        self._due.append((self._processes.clock.monotonic() + seconds, action))

    def write(self, line: bytes) -> None:
        """Write bytes, which need not be a message or end with a newline."""
        self._output += line

    def say(self, event: str, **values: Any) -> None:
        """Send a message."""
        self.write(json.dumps({"event": event, **values}).encode() + b"\n")

    def progress(self, step: int = 1) -> None:
        """Say how far the run is."""
        assert self.run is not None
        values = {"step": step, "steps": 40, "tokens": step, "train_loss": 1.0, "tokens_per_second": None}
        self.say("progress", run_id=self.folder().run_id, **values)

    def folder(self) -> RunFolder:
        assert self.run is not None
        return RunFolder(self._processes.study, self.run, self._processes.files)

    def record(self, outcome: Outcome = Outcome.COMPLETED) -> None:
        """Write the run's record, as a worker does before it says so."""
        folder, spec = self.folder(), self.run
        assert folder.try_lock()
        probed = spec.micro_batch_size if isinstance(spec, CapacitySpec) else None
        result = CapacityResult(micro_batch_size=probed, fits=True) if probed else None
        folder.begin().finish(Record(run_id=folder.run_id, outcome=outcome, result=result))
        folder.unlock()

    def finish(self) -> None:
        """End the run as a healthy worker does."""
        self.record()
        self.say("finished", run_id=self.folder().run_id)
        self.run = None
        if self._input_ended:
            self.die(0)

    def die(self, exit_code: int) -> None:
        """End; minus the number of a signal."""
        if self.ended is None:
            self.ended = exit_code
            self._due.clear()

    # What an engine does.

    def send(self, line: bytes) -> None:
        if self.ended is None:
            assert self.run is None, "a worker has one run at a time"
            command = json.loads(line)
            self.run = SPEC.validate_python(command["spec"])
            self._processes.attempts.append((self.folder().run_id, command["attempt"], self._processes.clock.seconds))
            self._processes.script(self, self.run)

    def read(self) -> tuple[bytes, bool]:
        output, self._output = self._output, b""
        return output, self.ended is not None

    def exit_code(self) -> int | None:
        return self.ended

    def end_input(self) -> None:
        self._input_ended = True
        if self.run is None:
            self.die(0)

    def terminate(self) -> None:
        if self.ended is None:
            self.say("interrupted")
            self.die(0)

    def kill(self) -> None:
        self.die(-9)

    def release(self) -> None:
        self.die(-9)
        self.released = True

    def errors(self) -> str:
        return self.printed

    def act(self, now: float) -> None:
        """Do what is due."""
        due = [action for when, action in self._due if when <= now]
        self._due = [(when, action) for when, action in self._due if when > now]
        for action in due:
            if self.ended is None:
                action()

    def next_due(self) -> float | None:
        return min((when for when, _ in self._due), default=None)


def healthy(worker: ScriptedWorker, spec: Spec) -> None:
    """Finish after a second."""
    worker.later(1.0, worker.finish)


def starts(worker: ScriptedWorker) -> None:
    """Be ready after half a second."""
    worker.later(0.5, lambda: worker.say("ready"))


class ScriptedProcesses:
    """`core.worker.Processes` without processes; `wait` moves the clock."""

    def __init__(
        self,
        study: Path,
        script: Script = healthy,
        *,
        start: Callable[[ScriptedWorker], None] = starts,
        clock: ManualClock | None = None,
        files: Files = DISK,
    ) -> None:
        self.study = study
        self.files = files
        self.script = script
        self.clock = clock or ManualClock()
        self.started: list[ScriptedWorker] = []
        self.attempts: list[tuple[str, int, float]] = []
        self.kills: int | None = 0
        self._start = start

    @property
    def alive(self) -> list[ScriptedWorker]:
        return [worker for worker in self.started if worker.ended is None]

    def start(self, command: WorkerCommand) -> ScriptedWorker:
        worker = ScriptedWorker(self, command, len(self.started))
        self.started.append(worker)
        self._start(worker)
        return worker

    def wait(self, seconds: float) -> None:
        until = self.clock.seconds + seconds
        due = [when for worker in self.alive if (when := worker.next_due()) is not None]
        self.clock.seconds = max(self.clock.seconds, min([until, *due]))
        for worker in self.alive:
            worker.act(self.clock.seconds)

    def wake(self) -> None: ...

    def oom_kills(self) -> int | None:
        return self.kills

    def close(self) -> None: ...


class SteppedEngine:
    """An Engine without a thread: `wait` makes the steps."""

    def __init__(
        self,
        processes: ScriptedProcesses,
        *,
        workers: int = 2,
        cores: int = 8,
        command: WorkerCommand | None = None,
        hosts: Sequence[Host] | None = None,
        runs_per_worker: int = 20,
        silence_seconds: float = 600.0,
    ) -> None:
        self._processes, self._events = processes, list[Event]()
        study, clock = processes.study, processes.clock
        command = command or WorkerCommand(("worker",))
        hosts = [this_machine(workers, cores=cores, cards=(), command=command)] if hosts is None else hosts
        pool = Pool(study, hosts, processes, clock)
        self._outstanding = 0
        self.dispatcher = Dispatcher(
            study,
            pool,
            processes,
            clock,
            self._events.append,
            runs_per_worker=runs_per_worker,
            silence_seconds=silence_seconds,
            files=processes.files,
        )

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        self._outstanding += 1
        self.dispatcher.submit(spec, exclusive=exclusive)

    def wait(self, timeout: float) -> list[Event]:
        deadline = self._processes.clock.seconds + timeout
        while self._outstanding and not self._events:
            self.dispatcher.step()
            if self._events or self._processes.clock.seconds >= deadline:
                break
            self._processes.wait(0.2)
        events, self._events[:] = list(self._events), []
        self._outstanding -= sum(isinstance(event, Finished) for event in events)
        return events

    def close(self) -> None:
        self.dispatcher.close(30.0, lambda: False)
