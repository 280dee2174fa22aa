"""Executes in this process: for the simulated device, for tests, and for debugging a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.files import Files
from batchlab.core.protocols import Event, Finished, Progress, Waiting
from batchlab.core.spec import Spec
from batchlab.engines.attempt import LiveRun, run_attempt
from batchlab.storage.files import DISK
from batchlab.storage.run_folder import RunFolder

_PARKED_SECONDS = 0.05


class InlineEngine:
    """An Engine without processes: `wait` executes the next spec and returns when it has ended.

    `stop_requested` is called between steps; once it returns True, the run saves a checkpoint and `wait` raises
    `protocols.Interrupted`.
    """

    def __init__(
        self,
        study: Path,
        stop_requested: Callable[[], bool] = lambda: False,
        files: Files = DISK,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._study = study.absolute()
        self._stop_requested = stop_requested
        self._files = files
        self._clock = clock
        self._waiting: deque[Spec] = deque()
        self._named: set[Waiting] = set()

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Queue a spec. Every spec runs alone here."""
        self._waiting.append(spec)

    def wait(self, timeout: float) -> list[Event]:
        """Execute the first spec that no other process has locked; wait up to `timeout` seconds for one."""
        deadline = self._clock.monotonic() + timeout
        while self._waiting:
            for _ in range(len(self._waiting)):
                spec = self._waiting.popleft()
                events = self._try(spec)
                if events is not None:
                    return events
                self._waiting.append(spec)
            if self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(_PARKED_SECONDS)
        return self._owners()

    def close(self) -> None:
        """Drop what is queued."""
        self._waiting.clear()

    def _owners(self) -> list[Event]:
        """Whom the queued runs are awaited from, each said once."""
        folders = [RunFolder(self._study, spec, self._files) for spec in self._waiting]
        found = [Waiting(folder.run_id, folder.owner()) for folder in folders]
        new = [waiting for waiting in found if waiting not in self._named]
        self._named.update(new)
        return list(new)

    def _try(self, spec: Spec) -> list[Event] | None:
        """The run's events, or None where another process has it. An interrupted run stays queued."""
        shown: list[Progress] = []
        run = LiveRun(self._study, spec, shown.append, self._stop_requested, self._files)
        if not run.try_lock():
            return None
        try:
            record = run.record()
            if record is None:
                self._waiting.appendleft(spec)
                record = run_attempt(run)
                self._waiting.popleft()
        finally:
            run.unlock()
        return [*shown, Finished(spec, record)]
