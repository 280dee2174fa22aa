"""The worker process, the same for every engine: it reads specs as JSON lines and writes records to the study's folder.

    batchlab worker --study DIR

Standard input takes `{"spec": …, "attempt": 1}`, one per line; standard output answers with events: `ready`,
`progress`, `waiting`, `finished`, `busy`, `interrupted`, `needs_fresh_process`, `needs_blocking_launches`,
`failed_storage`, `study_changed`. What the person's code prints goes to the run's log.txt and cannot disturb the
events. At the end of its input a worker finishes its run and exits.

Behind a launcher (`--launched-in DIRECTORY`) neither signals nor the death of the engine reach a worker. It takes
`{"stop": true}` instead of SIGTERM, says that it is `alive`, and takes the end of its input during a run to mean that
the engine has gone.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from batchlab.core.errors import StorageFailed, StudyChanged
from batchlab.core.protocols import Interrupted, KilledFromOutside, Progress
from batchlab.core.ranks import Membership
from batchlab.core.record import ProcessKind
from batchlab.core.spec import SPEC, Spec, TrainSpec
from batchlab.core.worker import HEARTBEAT_SECONDS, STOP
from batchlab.data.digests import told_of_waiting
from batchlab.engines.attempt import LiveRun, NeedsBlockingLaunches, NeedsFreshProcess, follow, run_attempt
from batchlab.storage.atomic import make_folders, storage_errors
from batchlab.storage.files import DISK

PROGRESS_SECONDS = 0.2
"""Least time between two progress events of one run."""

_PR_SET_PDEATHSIG = 1


class Emit(Protocol):
    """Sends one message to the engine."""

    def __call__(self, event: str, **values: object) -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the study given on the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="batchlab worker", description="Execute specs of a study.")
    parser.add_argument("--study", type=Path, required=True, help="the study's folder")
    parser.add_argument("--launched-in", type=Path, help="directory of a launched worker")
    parser.add_argument("--import-all", action="store_true", help="first import the framework")
    given = parser.parse_args(arguments)
    study, directory = given.study.absolute(), given.launched_in
    if directory is not None:
        os.chdir(directory)
    del sys.argv[1:]  # what the person's code parses when it is called
    return Worker(study, launched=directory is not None, import_all=given.import_all).serve()


class Worker:
    """One process serving one study. To be created and served in the main thread, which receives signals.

    forked: from a process that had loaded the task, and trained nothing.
    launched: its parent is a launcher, not the engine.
    import_all: import what every task needs while nothing has to wait for it.
    """

    def __init__(self, study: Path, *, forked: bool = False, launched: bool = False, import_all: bool = False) -> None:
        self._study = study
        self._import_all = import_all
        self._forked = forked
        self._leads = Membership.of().rank == 0  # other ranks of a run execute it too, in silence
        self._launched = launched
        self._commands: SimpleQueue[str | None] = SimpleQueue()
        self._current: Spec | None = None
        self._stop = False
        self._trained_before = False
        self._last_progress = 0.0
        self._out = os.dup(1)
        self._writing = threading.RLock()  # a signal may arrive while the main thread has it

    def serve(self) -> int:
        """Execute specs until the input ends or a signal asks to stop. Returns the exit code."""
        parent = os.getppid()
        if self._launched:
            _lead_group()
            threading.Thread(target=self._beat, daemon=True).start()
        else:
            die_with_parent(parent)
        threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
        threading.Thread(target=self._read, args=(os.dup(0),), daemon=True).start()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)
        faulthandler.enable()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        from batchlab.runs.execute import preload_framework  # the slow part of starting, before `ready`

        if self._import_all:
            preload_framework()
        self._emit("ready")
        while not self._stop and (command := self._commands.get()) is not None:
            if not self._execute(json.loads(command)):
                break
        if self._stop:
            self._emit("interrupted")  # for a spec that was sent but not begun
        return 0

    def _execute(self, command: dict[str, Any]) -> bool:
        """Execute one spec; False where this process should not take another."""
        spec = SPEC.validate_python(command["spec"])
        run = LiveRun(self._study, spec, self._show, lambda: self._stop)

        def attempt() -> None:
            self._current = spec
            self._last_progress = 0.0
            told_of_waiting.set(
                lambda file, owner: self._emit("waiting", run_id=run.run_id, text=str(file), owner=owner)
            )
            _redirect_output(run.log_path)
            if not self._leads:
                follow(run)
                return
            run_attempt(run, attempt=command.get("attempt", 1), process=self._process, repeats=True)
            self._trained_before = True

        try:
            if not self._leads:
                with storage_errors(run.path):
                    make_folders(run.path, DISK)
                attempt()
                return True
            return carry_out(run, attempt, self._emit)
        finally:
            self._current = None

    @property
    def _process(self) -> ProcessKind:
        if self._trained_before:
            return "used"
        return "forked" if self._forked else "new"

    def _show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_SECONDS or progress.step == progress.steps:
            self._last_progress = now
            self._emit("progress", **asdict(progress))

    def _emit(self, event: str, **values: object) -> None:
        if not self._leads:
            return
        rest = json.dumps({"event": event, **values}).encode() + b"\n"
        try:
            with self._writing:
                while rest:
                    rest = rest[os.write(self._out, rest) :]
        except BrokenPipeError:
            _end()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as lines:
            for line in lines:
                if line.encode() == STOP:
                    os.kill(os.getpid(), signal.SIGTERM)
                elif line.strip():
                    self._commands.put(line)
        if self._launched and self._current is not None:
            _end()
        self._commands.put(None)

    def _beat(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            self._emit("alive")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks the run to save and stop; a second one ends it, like the first if it saves nothing."""
        if self._stop:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._stop = True
        self._commands.put(None)
        if self._current is not None and not isinstance(self._current, TrainSpec):
            self._emit("interrupted")
            os._exit(0)


def carry_out(run: LiveRun, attempt: Callable[[], None], emit: Emit) -> bool:
    """Attempt the run unless it has a record, and tell the engine how it went; False where this process should end."""
    try:
        if not run.try_lock():
            emit("busy", run_id=run.run_id)
            return True
        with storage_errors(run.path):
            record = run.record()
        if record is None:
            attempt()
        run.unlock()
        emit("finished", run_id=run.run_id)
    except NeedsFreshProcess:
        run.unlock()
        emit("needs_fresh_process", run_id=run.run_id)
        return False
    except NeedsBlockingLaunches:
        run.unlock()
        emit("needs_blocking_launches", run_id=run.run_id)
        return False
    except Interrupted:
        run.unlock()
        emit("interrupted", run_id=run.run_id)
        return False
    except KilledFromOutside:
        os.kill(os.getpid(), signal.SIGKILL)
    except StorageFailed as error:
        emit("failed_storage", run_id=run.run_id, text=str(error))
        return False
    except StudyChanged as error:
        run.unlock()
        emit("study_changed", run_id=run.run_id, text=str(error))
        return False
    return True


def _redirect_output(log: Path) -> None:
    """Send everything printed from here on, also by native code, to the run's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    with storage_errors(log):
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """On Linux, have the kernel kill this process when the engine's ends, even during a long computation."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            _end()


def _lead_group() -> None:
    """Have a process group of its own, so that what the person's code starts can be ended with this process; a launcher
    may have started it within another one. A rank stays in that of its group."""
    if Membership.of().size == 1 and os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def _watch_parent(parent: int) -> None:
    """The same on every system, also for the processes that the person's code started."""
    while os.getppid() == parent:
        time.sleep(0.5)
    _end()


def _end() -> None:
    """Exit at once; where this process leads its group, end everything in it."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that the person's code left running must not keep the process alive
