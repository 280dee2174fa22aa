"""Worker processes on this machine: started without a shell, leaders of their own groups, read through pipes."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
from contextlib import suppress

from batchlab.core.worker import STOP, WorkerCommand
from batchlab.engines.launcher import end_launcher, kill_group
from batchlab.engines.pipe import WatchedPipe


class LocalProcess:
    """One worker process, whose output `selector` watches until it ends; None: from `watch` on."""

    def __init__(self, command: WorkerCommand, selector: selectors.BaseSelector | None) -> None:
        self._launched = command.launched
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in release()
        self._popen = subprocess.Popen(
            command.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **command.environment},
            start_new_session=True,
            bufsize=0,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._stdin = self._popen.stdin
        self._stdout = WatchedPipe(os.dup(self._popen.stdout.fileno()), selector)
        self._popen.stdout.close()

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Let a selector see its output, from the first line on."""
        self._stdout.watch(selector)

    def send(self, line: bytes) -> None:
        """Write a line to its input. That it has died meanwhile is noticed by `exit_code`."""
        with suppress(BrokenPipeError):
            self._stdin.write(line)

    def read(self) -> tuple[bytes, bool]:
        """What it wrote since the last call, and whether its output has ended."""
        return self._stdout.read()

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._popen.poll()

    def end_input(self) -> None:
        """Close its input: it exits when it has finished its run."""
        self._stdin.close()

    def terminate(self) -> None:
        """SIGTERM, or a line where that would only end its launcher: it saves a checkpoint and exits."""
        if not self._launched:
            self._popen.terminate()
        elif not self._stdin.closed:
            self.send(STOP)

    def kill(self) -> None:
        """End it and everything it has started."""
        if self._launched:
            end_launcher(self._popen)
        else:
            kill_group(self._popen)

    def release(self) -> None:
        """After its end: end the processes it started, and close the pipes."""
        self.kill()
        self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def errors(self) -> str:
        """The end of what it printed before it had a run's log to print to."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", errors="replace")[-65536:]
