"""Processes that take turns, as a seed says: each is a greenlet, one of them runs at a time, and time is counted.

A process may be interrupted wherever it calls `turn`, which it does before and after every file operation. Time passes
only while all processes wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet

FOREVER = math.inf
_MOST_TURNS = 50_000
_MOST_SECONDS = 86400.0


class Killed(BaseException):
    """This process is gone: nothing that it does from here on happens."""


class Hung(BaseException):
    """The simulation has gone on for too long."""


class Process:
    """One process. `ended` once it has returned, raised, or been killed."""

    def __init__(self, scheduler: Scheduler, name: str, main: Callable[[Process], None]) -> None:
        self.name = name
        self.killed = False
        self.ended = False
        self.wakes_at = 0.0
        self._scheduler = scheduler
        self._main = main
        self._course = greenlet(self._live, parent=scheduler.main)

    def sleep(self, seconds: float) -> None:
        """Let the others run for so long, or until somebody wakes it."""
        self.require_alive()
        self.wakes_at = self._scheduler.seconds + seconds
        self._scheduler.switch(self)
        self.require_alive()

    def turn(self) -> None:
        """Maybe let another process run now."""
        self.require_alive()
        if self._scheduler.takes_turns():
            self._scheduler.switch(self)
            self.require_alive()

    def wake(self) -> None:
        """End its `sleep`."""
        self.wakes_at = min(self.wakes_at, self._scheduler.seconds)

    def require_alive(self) -> None:
        if self.killed:
            raise Killed
        if self._scheduler.hung:
            raise Hung

    def go_on(self) -> None:
        """Continue where it stopped, instead of whoever calls this."""
        self._course.switch()

    def _live(self) -> None:
        try:
            self.require_alive()
            self._main(self)
        except (Killed, Hung):
            pass
        finally:
            self.ended = True
            self._scheduler.processes.remove(self)


class Scheduler:
    """Who runs next, and what time it is."""

    def __init__(self, dice: Random, *, switching: float) -> None:
        self.seconds = 1000.0
        self.jumped = 0.0  # of the clock on the wall
        self.hung = False
        self._dice = dice
        self._switching = switching
        self._turns = 0
        self.processes: list[Process] = []
        self.main = getcurrent()

    def start(self, name: str, main: Callable[[Process], None]) -> Process:
        """A new process, which runs when it is its turn."""
        process = Process(self, name, main)
        process.wakes_at = self.seconds
        self.processes.append(process)
        return process

    def run(self) -> None:
        """Return when all processes have ended."""
        while (process := self._next()) is not None:
            process.go_on()
        if self.hung:
            raise Hung

    def kill(self, process: Process) -> None:
        """End a process where it stands. It unwinds when it is its turn, and changes nothing."""
        process.killed = True
        process.wakes_at = self.seconds

    def takes_turns(self) -> bool:
        """Whether another process may run now."""
        return len(self.processes) > 1 and self._dice.random() < self._switching

    def switch(self, process: Process) -> None:
        """Let the next process run; returns when it is this one's turn again."""
        following = self._next()
        assert following is not None
        if following is not process:
            following.go_on()

    def _next(self) -> Process | None:
        if not self.processes:
            return None
        self._turns += 1
        ready = [process for process in self.processes if process.wakes_at <= self.seconds]
        if not ready:
            self.seconds = min(process.wakes_at for process in self.processes)
            ready = [process for process in self.processes if process.wakes_at <= self.seconds]
        if self._turns > _MOST_TURNS or self.seconds > _MOST_SECONDS:
            self.hung = True
        return ready[0] if len(ready) == 1 else self._dice.choice(ready)


class ProcessClock:
    """The clock that a process sees."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def now(self) -> float:
        return 1.8e9 + self._scheduler.seconds + self._scheduler.jumped

    def monotonic(self) -> float:
        return self._scheduler.seconds

    def sleep(self, seconds: float) -> None:
        """Not sooner; a second at least, so that whoever polls does not do it a thousand times."""
        self._process.sleep(max(seconds, 1.0))
