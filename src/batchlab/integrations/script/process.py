"""Run a command under its supervisor, with bounded output, and end all of it when the run is to stop."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from batchlab.core.protocols import Interrupted
from batchlab.integrations.script import supervisor

MOST_LOGGED = 2**23
"""Bytes of output that a run's log keeps of its beginning; the end is kept apart."""

TAIL_LINES = 20
LONGEST_LINE = 2**16
"""What a longer line has beyond this is dropped."""

LOOK_SECONDS = 1.0
"""Between two looks at whether the command still works."""

WORKING = 0.01
"""A command works while its processes use at least this share of a core."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. exit_code: minus the number where a signal ended it; None where it never started.

    peak_bytes: of its largest process. cut: it was ended because its time was over.
    """

    exit_code: int | None
    tail: tuple[str, ...]
    seconds: float
    peak_bytes: int | None = None
    cut: bool = False
    problem: str = ""


@dataclass(slots=True)
class Output:
    """Takes in what a command prints: a bounded log, its last lines, and every line for whoever looks for losses."""

    log: Callable[[bytes], object]
    line: Callable[[str, float], None]
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    logged: int = 0
    _partial: bytearray = field(default_factory=bytearray)

    def add(self, content: bytes, now: float) -> None:
        if self.logged < MOST_LOGGED:
            self.log(content[: MOST_LOGGED - self.logged])
        self.logged += len(content)
        pieces = content.replace(b"\r", b"\n").split(b"\n")
        for piece in pieces[:-1]:
            self._extend(piece)
            self._end_line(now)
        self._extend(pieces[-1])

    def close(self, now: float) -> None:
        self._end_line(now)
        if self.logged > MOST_LOGGED:
            left = self.logged - MOST_LOGGED
            self.log(f"\n[{left:,} bytes left out]\n".encode() + "\n".join(self.tail).encode(errors="replace") + b"\n")

    def _extend(self, piece: bytes) -> None:
        self._partial += piece[: LONGEST_LINE - len(self._partial)]

    def _end_line(self, now: float) -> None:
        if self._partial:
            text = self._partial.decode("utf-8", errors="replace")
            self._partial.clear()
            if text.strip():
                self.tail.append(text.rstrip())
            self.line(text, now)


def run_command(
    words: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    output: Output,
    working: Callable[[], None],
    stop_requested: Callable[[], bool],
    most_seconds: float,
    memory_limit: int | None = None,
) -> Ended:
    """Run a command to its end, for at most so many seconds.

    `working` is called about once a second while it prints or computes. Raises Interrupted, after ending everything it
    started, where `stop_requested`.
    """
    report_out, report_in = os.pipe()
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(report_in), str(memory_limit or 0), *words]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(report_in,),
        start_new_session=True,
        bufsize=0,
    )
    os.close(report_in)
    assert process.stdin is not None
    assert process.stdout is not None
    cut = False
    activity = _Activity(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            os.set_blocking(process.stdout.fileno(), False)
            selector.register(process.stdout, selectors.EVENT_READ)
            looked = 0.0
            while process.poll() is None:
                selector.select(LOOK_SECONDS)
                printed = _drain(process.stdout.fileno(), output)
                now = time.monotonic()
                if now - looked >= LOOK_SECONDS:
                    looked = now
                    if printed or activity.working():
                        working()
                if stop_requested():
                    _order(process, b"t")
                    process.wait()
                    raise Interrupted
                if not cut and now - started > most_seconds:
                    cut = True
                    _order(process, b"k")
            _drain(process.stdout.fileno(), output)
        output.close(time.monotonic())
        told = _told(report_out)
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()  # its end kills whatever still runs
        process.stdout.close()
        process.wait()
        os.close(report_out)
    exit_code = told.get("exit_code")
    return Ended(
        exit_code=exit_code if isinstance(exit_code, int) else None,
        tail=tuple(output.tail),
        seconds=_number(told.get("seconds")) or time.monotonic() - started,
        peak_bytes=int(peak) if (peak := _number(told.get("peak_bytes"))) else None,
        cut=cut,
        problem=str(told.get("not_started", "")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _drain(descriptor: int, output: Output, most: int = 2**24) -> bool:
    """Take in what was printed, at most so much at once; whether there was anything."""
    taken = 0
    while taken < most:
        try:
            piece = os.read(descriptor, 2**16)
        except BlockingIOError:
            break
        if not piece:
            break
        taken += len(piece)
        output.add(piece, time.monotonic())
    return taken > 0


def _order(process: subprocess.Popen[bytes], order: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(order)


def _told(report: int) -> dict[str, object]:
    os.set_blocking(report, False)
    try:
        content = os.read(report, 4096)
    except BlockingIOError:
        return {}
    return dict(json.loads(content)) if content else {}


class _Activity:
    """Whether the processes of a command compute."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seconds = 0.0
        self._at = time.monotonic()

    def working(self) -> bool:
        """Whether they used the processor since the last call."""
        now, used = time.monotonic(), self._used()
        share = (used - self._seconds) / max(now - self._at, 1e-9)
        self._at, self._seconds = now, used
        return share >= WORKING

    def _used(self) -> float:
        try:
            processes = psutil.Process(self._pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return self._seconds
        total = 0.0
        for process in processes:
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total
