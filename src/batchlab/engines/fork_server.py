"""The fork server: it imports the framework, loads the task and its data once, and forks workers. It trains nothing.

    python -m batchlab.engines.fork_server DESCRIPTOR

Python, torch and a person's own imports take two to fifteen seconds of a processor, the fork a few milliseconds. A
forked worker is a process of its own: what it allocates, caches, breaks or leaves in a global ends with it, its peak of
memory is counted from the fork, and its memory is limited for it alone.

A process can be forked safely only while nothing in it computes: a thread pool would be missing in the copy, and a
driver of an accelerator refuses to work there. Where loading the task has started threads or a device, or has failed,
this process ends without forking, and the engine starts such workers as new processes (engines/forked.py).

Requests come through the Unix socket DESCRIPTOR (`Request`), each with the worker's standard input, output and error
and a pipe to report to: `pid N` when it has begun, and `exit N` when it has ended, minus the number of a signal. The
end of the socket ends this process and its workers; the message `end` lets them finish first.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from batchlab.core.spec import Workload
from batchlab.engines.worker import Worker, die_with_parent

LARGEST_REQUEST = 2**18
END = b"end"
_DESCRIPTORS = 4
_WAKE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A worker to fork: for which study, and with which workload loaded."""

    study: str
    workload: Workload
    device: str | None = None  # CUDA_VISIBLE_DEVICES


REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the socket whose descriptor is given. Returns the exit code of this process, or of a forked worker."""
    [descriptor] = sys.argv[1:] if arguments is None else arguments
    die_with_parent(os.getppid())
    return Server(socket.socket(fileno=int(descriptor))).serve()


class Server:
    """One process that forks workers. To be served in the main thread."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, int] = {}  # worker's process → the pipe to report its end to
        self._loaded = ""
        self._threads = 0
        self._woken, self._wake = socket.socketpair()

    def serve(self) -> int:
        """Fork until there are no more requests. Returns in the forked workers as well, when they have ended."""
        from batchlab.runs.execute import preload_framework

        preload_framework()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        self._threads = _thread_count()
        self._wake_on_death()
        open_, wait_for_workers = True, False
        while open_ or self._reports:
            readable = self._wait(open_)
            self._report_ended()
            if not readable:
                continue
            content, descriptors, *_ = socket.recv_fds(self._requests, LARGEST_REQUEST, _DESCRIPTORS)
            if content == END:
                wait_for_workers = True
            elif not content:
                if not wait_for_workers:
                    return 0  # the engine's process has ended: the workers, which die with this one, are nobody's
                open_ = False
            else:
                request = REQUEST.validate_json(content)
                if not self._ready_for(request):
                    return 1
                if (exit_code := self._fork(request, descriptors)) is not None:
                    return exit_code
                for descriptor in descriptors[:3]:
                    os.close(descriptor)
        return 0

    def _ready_for(self, request: Request) -> bool:
        """Load the workload; whether a fork of this process can compute with it."""
        key = request.workload.model_dump_json()
        if key != self._loaded:
            from batchlab.runs.execute import preload

            with suppress(Exception, SystemExit):  # a worker of its own meets the same error, and reports it
                if not preload(request.workload, Path(request.study) / "cache"):
                    return False
                self._loaded = key
            self._wake_on_death()
            gc.collect()
            gc.freeze()  # collections in the workers neither copy nor search what was loaded here
        return key == self._loaded and _thread_count() <= self._threads

    def _fork(self, request: Request, descriptors: Sequence[int]) -> int | None:
        """The worker's exit code in the worker; None in this process."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those there are ran before any request
            process = os.fork()
        report = descriptors[3]
        if process:
            self._reports[process] = report
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.write(report, f"pid {os.getpid()}\n".encode())
        self._requests.close()
        for other in (report, *self._reports.values()):
            os.close(other)
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if request.device is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = request.device
        return Worker(Path(request.study), forked=True).serve()

    def _wait(self, open_: bool) -> bool:
        """Wait for a request or a worker's end; whether there is a request."""
        sources = [self._woken, *([self._requests] if open_ else [])]
        ready, _, _ = select.select(sources, [], [], _WAKE_SECONDS)
        if self._woken in ready:
            with suppress(BlockingIOError):
                self._woken.recv(4096)
        return self._requests in ready

    def _report_ended(self) -> None:
        for process, report in list(self._reports.items()):
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)  # what it started; before its number can be given to another
            _, status = os.waitpid(process, 0)
            with suppress(BrokenPipeError):
                os.write(report, f"exit {os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(report)
            del self._reports[process]

    def _wake_on_death(self) -> None:
        """Make the end of a worker readable; again after a person's code may have changed the signal's handler."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)


def _thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
