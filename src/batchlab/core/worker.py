"""The interface to worker processes: how one is started, what it says, and what its engine can do with it.

An engine decides through these alone, so the same decisions run over processes here, on other hosts behind a launch
prefix, and over scripted workers under a simulated clock.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from batchlab.core.protocols import Progress

_AS_EXIT_CODE = ("sh", "-c", '"$@"; exit $?', "sh")
"""A shell that ends with 128 and the number of the signal that ended its program. ssh itself reports every signal, and
every failure of its own, as 255."""


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How a worker process is started.

    environment: variables of the worker, besides those it inherits.
    prefix: a launcher that starts the program elsewhere and passes its pipes on: ("srun", "-N1", "-n1").
    through_shell: the launcher hands what it starts to a shell over there, as ssh does.
    fork_server: the program of a process that such workers may be forked from; empty: none.
    study: the folder whose specs it executes.
    preload: what the fork server loads before it forks this worker, as JSON (`runs.execute.preload`).
    """

    program: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    through_shell: bool = False
    fork_server: tuple[str, ...] = ()
    study: str = ""
    preload: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What is executed here. A launcher need not pass variables on, so they are set over there."""
        if not self.prefix:
            return self.program
        there = ("env", *(f"{name}={value}" for name, value in self.environment.items()), *self.program)
        return (*self.prefix, shlex.join((*_AS_EXIT_CODE, *there))) if self.through_shell else (*self.prefix, *there)

    @property
    def launched(self) -> bool:
        """Whether a launcher stands between this process and the worker."""
        return bool(self.prefix)


@dataclass(frozen=True, slots=True)
class Message:
    """A line of a worker: `ready`, `alive`, `progress`, `waiting` for the `owner` of file `text`, or a run's end."""

    event: str
    run_id: str = ""
    text: str = ""
    owner: str = ""
    progress: Progress | None = None


EVENTS = frozenset(
    {
        *("ready", "alive", "progress", "waiting", "finished", "busy", "interrupted"),
        *("needs_fresh_process", "needs_blocking_launches", "failed_storage", "study_changed"),
    },
)

STOP = b'{"stop": true}\n'
"""Asks a worker to save a checkpoint and exit, where no signal reaches it."""

HEARTBEAT_SECONDS = 5.0
"""A worker behind a launcher says so often that it is alive."""

LOST_SECONDS = 45.0
"""After so long without a word from it, a worker behind a launcher is lost, and so is what it ran on. Slurm itself
waits for a lost node for minutes."""

_MARK = b'{"event":'


class UnreadableMessage(Exception):
    """A line that begins as a message and is none: torn, or written by another version."""


def parse_message(line: bytes) -> Message | None:
    """The message in a line; None for a line of something else, such as a banner of the launcher.

    Raises UnreadableMessage.
    """
    if not line.startswith(_MARK):
        return None
    try:
        content = json.loads(line)
        event = content.pop("event")
        if event not in EVENTS:
            raise UnreadableMessage(line.decode(errors="replace")[:200])
        if event == "progress":
            return Message(event, content["run_id"], progress=Progress(**content))
        return Message(event, **content)
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableMessage(line.decode(errors="replace")[:200]) from error


class WorkerProcess(Protocol):
    """A worker process and its pipes. No method but `kill` and `release` may block."""

    def send(self, line: bytes) -> None:
        """Write a line to its input. That it has died meanwhile is noticed by `exit_code`."""

    def read(self) -> tuple[bytes, bool]:
        """What it wrote since the last call, and whether its output has ended."""

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""

    def end_input(self) -> None:
        """Close its input: it exits when it has finished its run."""

    def terminate(self) -> None:
        """Ask it to save a checkpoint and exit."""

    def kill(self) -> None:
        """End it and everything it has started; returns when it has ended."""

    def release(self) -> None:
        """After its end: end what it started, and close the pipes."""

    def errors(self) -> str:
        """What it or its launcher wrote to standard error, before it had a run's log to write to."""


class Processes(Protocol):
    """Starts worker processes, and waits until there is something to read."""

    def start(self, command: WorkerCommand) -> WorkerProcess:
        """Start a worker."""

    def wait(self, seconds: float) -> None:
        """Return when a worker has written or ended, when `wake` is called, or after so many seconds."""

    def wake(self) -> None:
        """End `wait`, from any thread."""

    def oom_kills(self) -> int | None:
        """How many processes the system has killed for lack of memory where these run; None where that is unknown."""

    def close(self) -> None:
        """Free everything. All workers have been released."""
