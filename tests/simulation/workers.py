"""Scripted workers: each is a process that executes its runs for real, but may fail in every way a process can."""

from __future__ import annotations

import json
import traceback
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.simulation.faults import RECORDED, Quirk
from tests.simulation.scheduler import FOREVER, Process, ProcessClock
from tests.simulation.world import Group, Member, World, WorldFiles

from batchlab.core.protocols import Event, Finished, Progress
from batchlab.core.spec import SPEC, Spec, TrainSpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.attempt import LiveRun, run_attempt
from batchlab.engines.dispatcher import Dispatcher
from batchlab.engines.hosts import this_machine
from batchlab.engines.pool import Pool
from batchlab.engines.worker import carry_out

_STARTING_SECONDS = 0.3
_SILENCE_SECONDS = 50.0
_OWN_FAULT_EXIT_CODE = 1
_KILLED = -9


class ScriptedWorker:
    """A `core.worker.WorkerProcess` whose process is one of the simulation. Answers by `engines.worker.carry_out`."""

    def __init__(self, world: World, group: Group, folder: Path, quirk: Quirk) -> None:
        self.ended: int | None = None
        self._world = world
        self._quirk = quirk
        self._group = group
        self._inbox: deque[bytes] = deque()
        self._output = b""
        self._stop = self._input_ended = False
        self._current: Spec | None = None
        self._printed = ""
        self._folder = folder
        process = world.scheduler.start(f"{group.study.process.name}.{len(group.members)}", self._live)
        self._member = Member(process, group, self._exit)
        group.members.append(self._member)

    # The process

    def _live(self, process: Process) -> None:
        process.sleep(_STARTING_SECONDS)
        if self._quirk is Quirk.DIES_STARTING:
            self._printed = "cannot start"
            self._exit(_OWN_FAULT_EXIT_CODE)
            return
        self._say("ready")
        try:
            while True:
                while not (self._inbox or self._input_ended or self._stop or self._group.orphaned):
                    process.sleep(FOREVER)
                if self._stop:
                    self._say("interrupted")
                    break
                if not self._inbox or not self._execute(json.loads(self._inbox.popleft())):
                    break
        except Exception:  # noqa: BLE001 - whatever it is, a worker must not end like this
            self._world.violations.append(traceback.format_exc())
            self._exit(_OWN_FAULT_EXIT_CODE)
        else:
            self._exit(0)

    def _execute(self, command: dict[str, Any]) -> bool:
        """Execute one spec; False where this process should not take another."""
        files = WorldFiles(self._world, self._member)
        spec = SPEC.validate_python(command["spec"])
        run = LiveRun(self._folder, spec, self._show, lambda: self._stop, files)
        self._begin_quirk(run.run_id)

        def attempt() -> None:
            self._current = spec
            run.log("begun")
            run_attempt(run, attempt=command["attempt"])

        def emit(event: str, **values: object) -> None:
            if event == "finished" and self._quirk is Quirk.DIES_BEFORE_SAYING:
                self._world.end(self._member, _KILLED)
            self._say(event, **values)

        try:
            if self._quirk is Quirk.CLAIMS_FINISHED:
                self._say("finished", run_id=run.run_id)
                return True
            return carry_out(run, attempt, emit)
        finally:
            self._current = None

    def _begin_quirk(self, run_id: str) -> None:
        dice = self._world.dice
        match self._quirk:
            case Quirk.DIES_BY_OWN_CODE:
                self._member.fate_in, self._member.exit_code = dice.randrange(1, 60), _OWN_FAULT_EXIT_CODE
            case Quirk.STALLS:
                self._member.fate_in, self._member.stalls = dice.randrange(1, 60), True
            case Quirk.GARBAGE:
                self._write(b'{"event": "prog\n')
            case Quirk.SPEAKS_OF_ANOTHER:
                self._say("finished", run_id=f"{run_id}0")

    def _show(self, progress: Progress) -> None:
        self._say("progress", **asdict(progress))

    def _say(self, event: str, **values: Any) -> None:
        line = json.dumps({"event": event, **values}).encode() + b"\n"
        if self._quirk is Quirk.TORN_LINE and event != "ready":
            self._write(line[: self._world.dice.randrange(1, len(line))])
            self._world.end(self._member, _KILLED)
        self._write(2 * line if self._quirk is Quirk.SAYS_TWICE else line)

    def _write(self, content: bytes) -> None:
        self._member.process.require_alive()
        self._output += content
        self._group.study.process.wake()
        self._member.process.turn()

    def _exit(self, code: int) -> None:
        if self.ended is None:
            self.ended = code
            self._world.disk.end_process(self._member.process)
            self._group.study.process.wake()

    # What an engine does

    def send(self, line: bytes) -> None:
        self._inbox.append(line)
        self._member.process.wake()

    def read(self) -> tuple[bytes, bool]:
        output, self._output = self._output, b""
        return output, self.ended is not None

    def exit_code(self) -> int | None:
        return self.ended

    def end_input(self) -> None:
        self._group.study.process.require_alive()
        self._input_ended = True
        self._member.process.wake()

    def terminate(self) -> None:
        self._group.study.process.require_alive()
        self._stop = True
        self._member.process.wake()
        if self._current is not None and not isinstance(self._current, TrainSpec):
            self._world.end(self._member, 0)

    def kill(self) -> None:
        self._group.study.process.require_alive()
        self._world.end(self._member)

    def release(self) -> None:
        self.kill()

    def errors(self) -> str:
        return self._printed


class ScriptedProcesses:
    """`core.worker.Processes` of one study's process."""

    def __init__(self, world: World, group: Group, folder: Path) -> None:
        self._world = world
        self._group = group
        self._folder = folder

    def start(self, command: WorkerCommand) -> ScriptedWorker:
        plan, quirk = self._world.plan, Quirk.NONE
        if not self._world.healthy and self._world.dice.random() < plan.quirk_share:
            quirk = plan.quirk
        if quirk is not Quirk.NONE:
            self._world.counts[quirk.value] += 1
            self._world.may_fail |= quirk in RECORDED
        return ScriptedWorker(self._world, self._group, self._folder, quirk)

    def wait(self, seconds: float) -> None:
        self._group.study.process.sleep(seconds)

    def wake(self) -> None: ...

    def oom_kills(self) -> int | None:
        return 0

    def close(self) -> None: ...


class SteppedEngine:
    """An Engine whose decisions are made in the study's own process."""

    def __init__(self, world: World, group: Group, folder: Path, workers: int) -> None:
        self._events: list[Event] = []
        self._outstanding = 0
        self._processes = ScriptedProcesses(world, group, folder)
        self._clock = ProcessClock(world.scheduler, group.study.process)
        command = WorkerCommand(("worker",))
        hosts = [this_machine(workers, cores=8, cards=(), command=command)]
        pool = Pool(folder, hosts, self._processes, self._clock)
        self._dispatcher = Dispatcher(
            folder,
            pool,
            self._processes,
            self._clock,
            self._events.append,
            runs_per_worker=20,
            silence_seconds=_SILENCE_SECONDS,
            files=WorldFiles(world, group.study),
        )

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        self._outstanding += 1
        self._dispatcher.submit(spec, exclusive=exclusive)

    def wait(self, timeout: float) -> list[Event]:
        deadline = self._clock.monotonic() + timeout
        while self._outstanding and not self._events:
            self._dispatcher.step()
            if self._events or self._clock.monotonic() >= deadline:
                break
            self._processes.wait(1.0)
        events, self._events[:] = list(self._events), []
        self._outstanding -= sum(isinstance(event, Finished) for event in events)
        return events

    def close(self) -> None:
        self._dispatcher.close(30.0, lambda: False)
