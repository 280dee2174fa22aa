"""The true largest batch: three of three fresh probes pass, and the next sizes fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PASSES = 3


@dataclass(frozen=True)
class Truth:
    """`largest` passed 3 of 3. `flips`: a probe at the next size, or the one after it, passed as well."""

    largest: int
    flips: bool


def largest_fitting(fits: Callable[[int, int], bool], guess: int) -> Truth:
    """Bracket the size from the guess in growing steps, bisect to neighbours, then probe each size as often as the
    definition requires, downwards until one passes 3 of 3. `fits(size, attempt)` runs one fresh probe."""
    passed, failed = _bracket(lambda size: fits(size, 0), guess)
    while failed - passed > 1:
        middle = (passed + failed) // 2
        passed, failed = (middle, failed) if fits(middle, 0) else (passed, middle)
    size = passed
    while fits(size + 1, 0) and all(fits(size + 1, attempt) for attempt in range(PASSES)):
        size += 1
    while size and not all(fits(size, attempt) for attempt in range(PASSES)):
        size -= 1
    flips = any(fits(size + 1, attempt) for attempt in range(2)) or fits(size + 2, 0)
    return Truth(size, flips)


def _bracket(fits: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """A size that passed (0: none) and a larger one that failed."""
    step, size = 1, guess
    if fits(size):
        while fits(size + step):
            size, step = size + step, 2 * step
        return size, size + step
    while size - step > 0 and not fits(size - step):
        size, step = size - step, 2 * step
    return max(size - step, 0), size
