"""Run a command, and end everything it started: `python supervisor.py REPORT MEMORY_LIMIT COMMAND…`.

Standard input is the leash: `t` asks the command to end, anything else and the end of the input kill it, as when the
worker dies. On Linux this process adopts the orphans of the command, so that processes which left its group are ended
too. REPORT is a file descriptor, on which it writes how the command ended. Uses the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time

GRACE_SECONDS = 5.0
"""Between asking a command to end and killing it."""

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_KILLED = b"k"


def main() -> None:
    """Run the command, report how it ended, and exit."""
    report, limit, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    started = time.monotonic()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_die_with_parent)
    except OSError as error:
        _tell(report, {"not_started": f"{error.strerror}: {error.filename or command[0]}"})
        return
    exit_code, peak = _wait(child.pid)
    seconds = time.monotonic() - started
    _end_descendants(child.pid)
    _tell(report, {"exit_code": exit_code, "peak_bytes": peak, "seconds": seconds})


def _die_with_parent() -> None:
    """Have the command killed where this process is, which then could not do it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tell(report: int, values: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(report, json.dumps(values).encode())


def _wait(child: int) -> tuple[int, int]:
    """Wait until the command ends; its exit code (minus a signal's number), and the peak of its largest process."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    kill_at: float | None = None
    while True:
        ended = _reap(child)
        if ended is not None:
            return ended
        wait = 1.0 if kill_at is None else max(0.0, kill_at - time.monotonic())
        for key, _ in selector.select(wait):
            if key.fd == woken:
                os.read(woken, 4096)
                continue
            order = os.read(0, 1)
            if order in (b"", _KILLED):
                kill_at = time.monotonic()
            if order == b"":
                selector.unregister(0)
            if order == b"t":
                kill_at = time.monotonic() + GRACE_SECONDS
                _signal_group(child, signal.SIGTERM)
        if kill_at is not None and time.monotonic() >= kill_at:
            _signal_group(child, signal.SIGKILL)
            kill_at = None


def _reap(child: int) -> tuple[int, int] | None:
    """Collect every process that has ended; the result of the command itself, once it has."""
    found = None
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            scale = 1 if sys.platform == "darwin" else 1024
            found = os.waitstatus_to_exitcode(status), usage.ru_maxrss * scale


def _signal_group(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def _end_descendants(child: int) -> None:
    """Kill what is left: first the command's group, then whatever became a child of this process."""
    _signal_group(child, signal.SIGKILL)
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []  # no Linux: processes that left the group are not known


if __name__ == "__main__":
    main()
