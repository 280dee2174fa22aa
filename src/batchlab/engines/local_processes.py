"""The processes of this machine as an engine sees them: starts workers, and waits for what they write."""

from __future__ import annotations

import os
import selectors
from contextlib import suppress

from batchlab.core.worker import WorkerCommand, WorkerProcess
from batchlab.engines.early import Early
from batchlab.engines.forked import ForkedProcess
from batchlab.engines.oom_kills import count_oom_kills
from batchlab.engines.process import LocalProcess


class LocalProcesses:
    """Starts workers on this machine and waits for their output.

    early: forks those workers whose fork server was started, and has those that were started ahead.
    """

    def __init__(self, early: Early) -> None:
        self._early = early
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker, or have it forked, unless one was started ahead for this command."""
        if (process := self._early.ahead.take(command)) is not None:
            process.watch(self._selector)
            return process
        server = self._early.servers.of(command)
        return (
            LocalProcess(command, self._selector) if server is None else ForkedProcess(command, self._selector, server)
        )

    def wait(self, seconds: float) -> None:
        """Return when a worker has written or ended, when `wake` is called, or after so many seconds."""
        for ready, _ in self._selector.select(seconds):
            if ready.fd == self._wake_out:
                with suppress(BlockingIOError):
                    os.read(self._wake_out, 65536)

    def wake(self) -> None:
        """End `wait`, from any thread."""
        os.write(self._wake_in, b"!")

    def oom_kills(self) -> int | None:
        """The kernel's count."""
        return count_oom_kills()

    def close(self) -> None:
        """Close the pipe and the selector."""
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)
