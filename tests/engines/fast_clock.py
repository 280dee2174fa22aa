"""A clock for tests in which somebody waits."""

from __future__ import annotations

from batchlab.core.clock import SystemClock


class FastClock(SystemClock):
    """Twenty seconds in one, so that nobody waits before further attempts."""

    def monotonic(self) -> float:
        return 20.0 * super().monotonic()
