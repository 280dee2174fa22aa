"""The true largest batch: three of three fresh probes pass, and the next sizes fail."""

from __future__ import annotations

import math
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
    size = largest(lambda size: fits(size, 0), guess)
    while fits(size + 1, 0) and all(fits(size + 1, attempt) for attempt in range(PASSES)):
        size += 1
    while size and not all(fits(size, attempt) for attempt in range(PASSES)):
        size -= 1
    flips = any(fits(size + 1, attempt) for attempt in range(2)) or fits(size + 2, 0)
    return Truth(size, flips)


def largest(fits: Callable[[int], bool], guess: int, resolution: float = 0.0) -> int:
    """The largest size that fits, bracketed from a guess in growing steps, then by bisection; 0: none.

    resolution: the answer may be this share too small.
    """
    step = math.ceil(resolution * guess) or 1
    if fits(guess):
        passed = guess
        while fits(passed + step):
            passed, step = passed + step, 2 * step
        failed = passed + step
    else:
        failed = guess
        while failed > step and not fits(failed - step):
            failed, step = failed - step, 2 * step
        passed = max(failed - step, 0)
    while failed - passed > max(1, math.ceil(resolution * passed)):
        middle = (passed + failed) // 2
        passed, failed = (middle, failed) if fits(middle) else (passed, middle)
    return passed
