"""What time it is, as a value that is passed in: a simulation has a clock of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock. `monotonic` never goes backwards; `now` may jump either way."""

    def now(self) -> float:
        """Seconds since 1970, for people and for comparison with the times of files."""

    def monotonic(self) -> float:
        """Seconds since some moment, for durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds, not sooner."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
