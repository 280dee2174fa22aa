"""How long probes take: no step of minutes is run only to verify a size far above the one that is fast enough.

On a CPU with much free memory a small model fits by the ten thousand, and three whole steps at that size take minutes,
although throughput stopped rising at a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchlab.search.probe_time import EVALUATION

LONGEST_PROBE_SECONDS = 60.0
"""A probe that would take longer is questioned."""

USEFUL = 8
"""Sizes up to this multiple of the knee are run however long they take."""

UNTIMED = 64
"""Probes of at most this many samples are run without an estimate of their time."""

_TIMED = (8, 32, 128, 512, 2048)
_SAME_SPEED = 0.9
"""Four times the size that still takes this share of the time per sample is no faster to speak of."""


@dataclass(frozen=True, slots=True)
class TooSlow:
    """The largest size would take `seconds` to verify. Throughput hardly rises above `knee`. `useful`: run instead."""

    seconds: float
    knee: int
    useful: int


class Effort:
    """Estimates how long probes take, from the time per sample of small ones.

    time: seconds per sample of whole steps at a size; None where it did not run. passes: micro-batches of one probe.
    """

    def __init__(self, time: Callable[[int], float | None], passes: int) -> None:
        self._time = time
        self._passes = passes

    def too_slow(self, size: int) -> TooSlow | None:
        """Whether probing `size` would take too long, by as few small probes as show it; None where it would not."""
        if size <= UNTIMED:
            return None
        knee, best = 0, float("inf")
        for timed in (small for small in _TIMED if small < size):
            seconds = self._time(timed)
            if seconds is None or self._seconds(size, min(best, seconds)) <= LONGEST_PROBE_SECONDS:
                return None
            if seconds > _SAME_SPEED * best:
                break
            knee, best = timed, seconds
        quick = int(LONGEST_PROBE_SECONDS / self._seconds(1, best))
        useful = max(USEFUL * knee, quick)
        return TooSlow(self._seconds(size, best), knee, useful) if useful < size else None

    def _seconds(self, size: int, per_sample: float) -> float:
        return size * per_sample * (self._passes + EVALUATION)
