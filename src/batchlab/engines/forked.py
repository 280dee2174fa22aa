"""Workers forked from a process that has loaded the task (engines/fork_server.py), seen from the engine."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from batchlab.core.spec import Workload
from batchlab.core.worker import WorkerCommand
from batchlab.engines.fork_server import END, REQUEST, Request
from batchlab.engines.pipe import WatchedPipe
from batchlab.engines.process import LocalProcess

_DEVICE = "CUDA_VISIBLE_DEVICES"
"""The one variable that may differ between the workers of one server: nothing reads it before a worker has begun."""

_END_SECONDS = 5.0


class ForkServer:
    """A running fork server, and the socket of its requests.

    To be started in a thread that outlives it: the kernel ends it with that thread.
    """

    def __init__(self, command: WorkerCommand) -> None:
        self._asked = False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._popen = subprocess.Popen(
                [*command.fork_server, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **command.environment},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def ask(self, command: WorkerCommand, descriptors: Sequence[int]) -> None:
        """Ask for a worker. Where the server has ended, the pipe to report to ends without a word."""
        self._asked = True
        workload = Workload.model_validate_json(command.preload)
        request = Request(command.study, workload, command.environment.get(_DEVICE))
        with suppress(OSError):
            socket.send_fds(self._socket, [REQUEST.dump_json(request)], list(descriptors))

    def kill(self) -> None:
        """End it, and with it its workers."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def end(self) -> None:
        """Take no more requests; it ends with its last worker, at once where it never had one."""
        if not self._asked:
            self.kill()
        with suppress(OSError):
            self._socket.send(END)
        self._socket.close()

    def wait(self, seconds: float) -> None:
        """After `end`: wait until it has ended, and end it after so many seconds."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()


class ForkServers:
    """The fork servers of one invocation, of which one takes requests: workers with other settings need another one."""

    def __init__(self) -> None:
        self._key: object = None
        self._server: ForkServer | None = None
        self._ending: list[ForkServer] = []

    def start(self, command: WorkerCommand) -> None:
        """Have a server for such workers, and end another one, whose memory they need.

        One that could not fork such workers, and has ended, is not started again.
        """
        if _key(command) == self._key:
            return
        self._retire()
        self._key = _key(command)
        self._server = ForkServer(command) if command.fork_server else None

    def of(self, command: WorkerCommand) -> ForkServer | None:
        """The server for such workers, where there is one."""
        return self._server if _key(command) == self._key else None

    def close(self) -> None:
        """End all servers. May be called twice."""
        self._retire()
        for server in self._ending:
            server.wait(_END_SECONDS)
        self._ending.clear()

    def _retire(self) -> None:
        if self._server is not None:
            self._server.end()
            self._ending.append(self._server)
        self._server = self._key = None


def _key(command: WorkerCommand) -> object:
    variables = {name: value for name, value in command.environment.items() if name != _DEVICE}
    return command.fork_server, tuple(sorted(variables.items()))


class ForkedProcess:
    """A worker that a fork server forks, or, where it cannot, a new process instead of it (a `WorkerProcess`)."""

    def __init__(self, command: WorkerCommand, selector: selectors.BaseSelector, server: ForkServer) -> None:
        self._command, self._selector, self._server = command, selector, server
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in release()
        stdin, self._stdin = os.pipe()
        stdout_out, stdout = os.pipe()
        report_out, report = os.pipe()
        server.ask(command, (stdin, stdout, self._errors.fileno(), report))
        for descriptor in (stdin, stdout, report):
            os.close(descriptor)
        self._stdout, self._report = WatchedPipe(stdout_out, selector), WatchedPipe(report_out, selector)
        self._said = b""
        self._reported_all = self._input_ended = False
        self._instead: LocalProcess | None = None

    def send(self, line: bytes) -> None:
        """Write a line to its input. That it has died meanwhile is noticed by `exit_code`."""
        if self._instead is not None:
            self._instead.send(line)
            return
        with suppress(BrokenPipeError):
            os.write(self._stdin, line)

    def read(self) -> tuple[bytes, bool]:
        """What it wrote since the last call, and whether its output has ended."""
        return self._stdout.read() if self._instead is None else self._instead.read()

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        self._look()
        return self._exit_code if self._instead is None else self._instead.exit_code()

    def end_input(self) -> None:
        """Close its input: it exits when it has finished its run."""
        if self._instead is not None:
            self._instead.end_input()
        elif not self._input_ended:
            os.close(self._stdin)
        self._input_ended = True

    def terminate(self) -> None:
        """SIGTERM: it saves a checkpoint and exits. What was not forked yet has nothing to save."""
        self._look()
        if self._instead is not None:
            self._instead.terminate()
        elif (process := self._reported("pid")) is None:
            self._server.kill()
        elif self._exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)

    def kill(self) -> None:
        """End it and everything it has started; the server with it where that has not forked it yet."""
        self._look()
        if self._instead is not None:
            self._instead.kill()
            return
        if (process := self._reported("pid")) is None:
            self._server.kill()
        elif self._exit_code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)
        while not self._reported_all:
            self._report.wait()
            self._hear()

    def release(self) -> None:
        """After its end: end the processes it started, and close the pipes."""
        self.kill()
        if self._instead is not None:
            self._instead.release()
        else:
            self._close()

    def errors(self) -> str:
        """The end of what it printed before it had a run's log to print to."""
        if self._instead is not None:
            return self._instead.errors()
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", errors="replace")[-65536:]

    @property
    def _exit_code(self) -> int | None:
        """As the server reported it; where that died, it took its workers with it."""
        code = self._reported("exit")
        return -signal.SIGKILL if code is None and self._reported_all else code

    def _look(self) -> None:
        """Hear the server; where it ended without forking this worker, start it as a new process."""
        if self._instead is not None or self._reported_all:
            return
        self._hear()
        if self._reported_all and self._reported("pid") is None:
            self._close()
            self._instead = LocalProcess(self._command, self._selector)
            if self._input_ended:
                self._instead.end_input()

    def _hear(self) -> None:
        said, self._reported_all = self._report.read()
        self._said += said

    def _reported(self, what: str) -> int | None:
        """The number in a line of the server's report, such as `exit -9`."""
        for line in self._said.decode().splitlines(keepends=True):
            name, _, number = line.partition(" ")
            if name == what and number.endswith("\n"):
                return int(number)
        return None

    def _close(self) -> None:
        if not self._input_ended:
            os.close(self._stdin)
        self._stdout.close()
        self._report.close()
        self._errors.close()
