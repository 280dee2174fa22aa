"""Worker processes on this machine: started without a shell, leaders of their own groups, read through pipes."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from contextlib import suppress

from batchlab.core.worker import WorkerCommand
from batchlab.engines.oom_kills import count_oom_kills


class LocalProcess:
    """One worker process, whose output `selector` watches until it ends."""

    def __init__(self, command: WorkerCommand, selector: selectors.BaseSelector) -> None:
        self._selector = selector
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
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        os.set_blocking(self._stdout.fileno(), False)
        selector.register(self._stdout, selectors.EVENT_READ)
        self._watched = True

    def send(self, line: bytes) -> None:
        """Write a line to its input. That it has died meanwhile is noticed by `exit_code`."""
        with suppress(BrokenPipeError):
            self._stdin.write(line)

    def read(self) -> tuple[bytes, bool]:
        """What it wrote since the last call, and whether its output has ended."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = os.read(self._stdout.fileno(), 65536)
            except BlockingIOError:
                return b"".join(pieces), False
            if not piece:
                self._stop_watching()
                return b"".join(pieces), True
            pieces.append(piece)

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._popen.poll()

    def end_input(self) -> None:
        """Close its input: it exits when it has finished its run."""
        self._stdin.close()

    def terminate(self) -> None:
        """SIGTERM: it saves a checkpoint and exits."""
        self._popen.terminate()

    def kill(self) -> None:
        """End it and everything it has started."""
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def release(self) -> None:
        """After its end: end the processes it started, and close the pipes."""
        self.kill()
        self._stop_watching()
        self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def errors(self) -> str:
        """The end of what it printed before it had a run's log to print to."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", errors="replace")[-65536:]

    def _stop_watching(self) -> None:
        if self._watched:
            self._selector.unregister(self._stdout)
            self._watched = False


class LocalProcesses:
    """Starts workers on this machine and waits for their output."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ)

    def start(self, command: WorkerCommand) -> LocalProcess:
        """Start a worker."""
        return LocalProcess(command, self._selector)

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
