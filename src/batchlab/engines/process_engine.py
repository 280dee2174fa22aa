"""Worker processes, driven by a thread of their own, so that no worker waits while the study analyses.

Training runs with equal settings share a process. Everything that measures gets a process of its own: forked from one
that has loaded the task where that is possible (engines/fork_server.py), and new where its spec asks for that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.protocols import Event, Finished
from batchlab.core.spec import Spec
from batchlab.engines.command import must_be_new, wanted_later, worker_command
from batchlab.engines.dispatcher import Dispatcher
from batchlab.engines.early import Early
from batchlab.engines.hosts import Host
from batchlab.engines.local_processes import LocalProcesses
from batchlab.engines.pool import Pool

_TICK_SECONDS = 0.2


class _Submitted(NamedTuple):
    spec: Spec
    exclusive: bool


class ProcessEngine:
    """An Engine over worker processes on one or several hosts (engines/hosts.py); what measures runs on the first.

    runs_per_worker: a shared worker is replaced after this many runs.
    silence_seconds: a run without a sign of life for this long is ended and recorded as failed.
    grace_seconds: how long runs may take on `close` to save a checkpoint.
    early: processes started early, which other engines of this invocation use too; default: its own.
    """

    def __init__(
        self,
        study: Path,
        hosts: Sequence[Host],
        *,
        runs_per_worker: int = 20,
        silence_seconds: float = 600.0,
        grace_seconds: float = 30.0,
        early: Early | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._grace_seconds = grace_seconds
        # The study's thread and the engine's own communicate through these only.
        self._submitted: queue.SimpleQueue[_Submitted] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._closing, self._end_now = threading.Event(), threading.Event()
        self._command = hosts[0].command
        self._early, self._owns_early = (Early(), True) if early is None else (early, False)
        self._processes = LocalProcesses(self._early)
        # The study's thread:
        self._outstanding = 0
        self._failure: Exception | None = None
        self._closed = False
        # The engine's thread:
        self._study = study = study.absolute()
        pool = Pool(study, hosts, self._processes, clock)
        self._dispatcher = Dispatcher(
            study,
            pool,
            self._processes,
            clock,
            self._events.put,
            runs_per_worker=runs_per_worker,
            silence_seconds=silence_seconds,
        )
        self._thread = threading.Thread(target=self._live, name="batchlab-engine", daemon=True)
        self._thread.start()

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Queue a spec. `exclusive` ones run alone on the device, each in a fresh process."""
        self._outstanding += 1
        if not must_be_new(spec):  # one that is new leaves the server to those that come after it
            self._early.servers.start(worker_command(self._command, self._study, spec, None))
        if not self._command.launched and (later := wanted_later(spec)) is not None:
            self._early.ahead.start(worker_command(self._command, self._study, later, None))
        self._submitted.put(_Submitted(spec, exclusive))
        self._processes.wake()

    def wait(self, timeout: float) -> list[Event]:
        """Events since the last call; blocks up to `timeout` seconds for the first one.

        Returns at once when nothing is queued or running. Raises StorageFailed when a worker could not write,
        StudyChanged when it found other data or code than the study's, and WorkerLost when a run lost its worker too
        often.
        """
        events: list[Event] = []
        with suppress(queue.Empty):
            while self._outstanding and self._failure is None:
                event = self._events.get(timeout=0 if events else timeout)
                if isinstance(event, Exception):
                    self._failure = event
                else:
                    events.append(event)
                    self._outstanding -= isinstance(event, Finished)
        if self._failure is not None and not events:
            raise self._failure
        return events

    def close(self) -> None:
        """Stop all runs, which save checkpoints, and end all workers. May be called twice.

        Ctrl-C meanwhile ends all workers at once.
        """
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._processes.wake()
        try:
            self._thread.join()
        finally:
            self._end_now.set()
            self._thread.join()
            self._processes.close()
            if self._owns_early:
                self._early.close()

    def _live(self) -> None:
        """The engine's thread."""
        try:
            while not self._closing.is_set():
                while not self._submitted.empty():
                    spec, exclusive = self._submitted.get()
                    self._dispatcher.submit(spec, exclusive=exclusive)
                self._dispatcher.step()
                self._processes.wait(_TICK_SECONDS)
        except Exception as error:  # noqa: BLE001 - wait() raises it again, in the study's thread
            self._events.put(error)
        finally:
            self._dispatcher.close(self._grace_seconds, self._end_now.is_set)
