"""Processes that begin before there is anything for them to do, so that their imports take nobody's time.

Both kinds are started in the thread of the study and not in an engine's: the kernel ends them with that thread.
"""

from __future__ import annotations

import threading

from batchlab.core.worker import WorkerCommand
from batchlab.engines.forked import ForkServers
from batchlab.engines.process import LocalProcess


class Ahead:
    """A worker that was started before it is wanted: it imports while others compute, and waits. One at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one thread starts it, another takes it
        self._started: tuple[WorkerCommand, LocalProcess] | None = None

    def start(self, command: WorkerCommand) -> None:
        """Start a worker that is likely to be wanted soon, unless one like it waits; one of another kind is ended."""
        with self._lock:
            if self._started is not None and self._started[0] != command:
                self._started[1].release()
                self._started = None
            if self._started is None:
                self._started = command, LocalProcess(command, None)

    def take(self, command: WorkerCommand) -> LocalProcess | None:
        """The worker that was started for this command; None where there is none, or it has ended."""
        with self._lock:
            if self._started is None or self._started[0] != command:
                return None
            (_, process), self._started = self._started, None
        if process.exit_code() is None:
            return process
        process.release()
        return None

    def close(self) -> None:
        """End a worker that nobody wanted. May be called twice."""
        with self._lock:
            if self._started is not None:
                self._started[1].release()
                self._started = None


class Early:
    """The fork servers and the worker started ahead of one invocation, which all its engines share."""

    def __init__(self) -> None:
        self.servers = ForkServers()
        self.ahead = Ahead()

    def close(self) -> None:
        """End them. May be called twice."""
        self.ahead.close()
        self.servers.close()
