"""A worker process as its engine sees it: started without a shell, leader of its own group, read through a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


_SPIN_COUNT = "5000"
"""How long threads of GNU's OpenMP runtime spin before they sleep. Its default is hundreds of times as long; beside one
other busy program, two threads then fall to a hundredth of their speed (quickstart model: 0.4k tokens/s; with this
value 5k to 10k). On an idle machine it costs 3 %: 49k instead of 51k tokens/s at batch 4, 82k instead of 84k at 32."""


class WorkerProcess:
    """One `batchlab worker` process. No method blocks, except those that wait for its end."""

    def __init__(self, command: Sequence[str], study: Path, *, threads: int, extra: Mapping[str, str]) -> None:
        self.served = 0
        self.leaving = False
        self.last_heard = time.monotonic()
        self._partial = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in release()
        environment = {
            "GOMP_SPINCOUNT": _SPIN_COUNT,  # a value set by the person takes precedence
            **os.environ,
            **{name: str(threads) for name in _THREAD_VARIABLES},
            "MALLOC_ARENA_MAX": "1",  # memory per thread arena would be counted against the model
            "PYTHONUNBUFFERED": "1",
            "PYTHONHASHSEED": "0",  # sets of strings iterate in the same order in every worker
            **extra,
        }
        self._popen = subprocess.Popen(
            [*command, "--study", str(study)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        os.set_blocking(self._stdout.fileno(), False)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        """Readable when the worker wrote something or its output ended."""
        return self._stdout.fileno()

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a spec. A worker that has died meanwhile is noticed by `exit_code`."""
        self.last_heard = time.monotonic()
        with suppress(BrokenPipeError):
            self._stdin.write(json.dumps(command).encode() + b"\n")

    def events(self) -> tuple[list[dict[str, Any]], bool]:
        """Events since the last call, and whether the output has ended. A torn line of a killed worker is dropped."""
        pieces, ended = [self._partial], False
        while True:
            try:
                piece = os.read(self.fileno(), 65536)
            except BlockingIOError:
                break
            if not piece:
                ended = True
                break
            pieces.append(piece)
        *lines, self._partial = b"".join(pieces).split(b"\n")
        if lines:
            self.last_heard = time.monotonic()
        return [json.loads(line) for line in lines if line.strip()], ended

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        return self._popen.poll()

    def dismiss(self) -> None:
        """Close its input: it exits when it has finished its run."""
        self.leaving = True
        self._stdin.close()

    def ask_to_stop(self) -> None:
        """SIGTERM: it saves a checkpoint and exits."""
        self.leaving = True
        self._popen.terminate()

    def kill(self) -> None:
        """End it and everything it has started."""
        self.leaving = True
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def release(self) -> None:
        """After its end: end the processes it started, and close the pipes."""
        self.kill()
        self._stdin.close()
        self._stdout.close()
        self._errors.close()

    def last_output(self) -> str:
        """The end of what it printed before it had a run's log to print to, in one line."""
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", errors="replace")
        return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-400:]
