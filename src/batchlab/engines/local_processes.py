"""The processes of this machine as an engine sees them: starts workers, and waits for what they write."""

from __future__ import annotations

import os
import selectors
from contextlib import suppress

from batchlab.core.worker import WorkerCommand, WorkerProcess
from batchlab.engines.forked import ForkedProcess, ForkServers
from batchlab.engines.oom_kills import count_oom_kills
from batchlab.engines.process import LocalProcess


class LocalProcesses:
    """Starts workers on this machine and waits for their output.

    servers: forks those workers whose fork server was started.
    """

    def __init__(self, servers: ForkServers) -> None:
        self._servers = servers
        self._ahead: tuple[WorkerCommand, LocalProcess] | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker, or have it forked, unless one was started ahead for this command."""
        if self._ahead is not None and self._ahead[0] == command:
            (_, process), self._ahead = self._ahead, None
            if process.exit_code() is None:
                process.watch(self._selector)
                return process
            process.release()
        server = self._servers.of(command)
        return (
            LocalProcess(command, self._selector) if server is None else ForkedProcess(command, self._selector, server)
        )

    def start_ahead(self, command: WorkerCommand) -> None:
        """Start a worker that is likely to be wanted soon: it imports while others compute, and waits. One at a time.

        To be called in the thread that starts workers, because the kernel ends a worker with that thread.
        """
        if self._ahead is None:
            self._ahead = command, LocalProcess(command, None)

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
        """Close the pipe and the selector, and end a worker that nobody wanted."""
        if self._ahead is not None:
            self._ahead[1].release()
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)
