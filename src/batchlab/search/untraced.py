"""The next size to run where nothing is traced: memory is known only at the sizes that ran.

Ordinary memory is a + b·size + c·size² with a, b, c ≥ 0: weights, activations, and what grows with pairs of samples.
Below some size it may be flat, where another phase of the step needs more. From few points the next size is one at
which no such memory runs out:

- from one point, peak·(size/known)²: as if all of it were quadratic;
- from two, the curve a + c·size² through them, the steepest beyond them;
- from three or more, the parabola through the last three, a little steeper.

A step is at most fourfold until a forecast has come true. The answer is the size above which the forecast leaves
nothing, if the points below it had forecast its peak within a sample or half a percent. Otherwise memory is odd (it has
steps, or bends near the limit), and the search goes on until a size a sample or 1 % above the answer has failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from batchlab.search.forecast import Forecast, half_tolerance, tolerance
from batchlab.search.memory_curve import largest_size

_STEP = 4
"""The most by which a size is multiplied before a forecast has come true."""

_LEAST_STEP = 1.05
_LEARNING_STEP = 1.25
"""Factors that are tried although quadratic memory would run out, the larger one only where proportion allows it."""

_NEAR = 1.25
"""A failure at most this factor above the largest size that ran is likely to have been missed by little."""

_CREEP = 0.1
"""The most by which sizes without a forecast grow, as a share."""

_MANY = 3
"""Failures after which only bisection is left."""


def came_true(measured: Mapping[int, float]) -> bool:
    """Whether the points below the largest size forecast its bytes within a sample or 1 %."""
    size = max(measured)
    below = {known: peak for known, peak in measured.items() if known < size - tolerance(size)}
    forecast = Forecast.through(below) if below else None
    if forecast is None or len(forecast.rising) < 2:
        return False  # proportion may hold by chance
    per_sample = (forecast.at(size) - forecast.at(max(below))) / (size - max(below))
    return abs(forecast.at(size) - measured[size]) <= per_sample * max(1, half_tolerance(size))


def next_size(measured: Mapping[int, float], failed: Sequence[int], target: float, most: int) -> int:
    """The size to run next, or the largest that ran where that is the answer. measured: bytes of every size that ran
    below all that failed; not empty."""
    best, ceiling = max(measured), min([most, *(size - 1 for size in failed)])
    if best >= ceiling or (failed and ceiling - best <= tolerance(best)):
        return best
    forecast = Forecast.through(measured)
    likely = _within(forecast.at, target, best, ceiling)
    if failed:
        return _in_bracket(measured, failed, likely, ceiling)
    if likely == best:
        return best if came_true(measured) else _beyond(measured, ceiling)
    size = max(_careful(measured, forecast, target, likely), best + 1)
    creeps = len(measured) > 2 and size - best <= tolerance(best) and not came_true(measured)
    return min(max(size, _beyond(measured, ceiling)) if creeps else size, ceiling)


def leaves_nothing(measured: Mapping[int, float], size: int, target: float, most: int) -> bool:
    """Whether this size is the answer if its bytes are as forecast."""
    if len(measured) < 2:
        return False
    return size + tolerance(size) > _within(Forecast.through(measured).at, target, max(measured), most)


def _careful(measured: Mapping[int, float], forecast: Forecast, target: float, likely: int) -> int:
    """The largest size that no ordinary memory exceeds, at most fourfold before a forecast came true."""
    best = max(measured)
    safe = _within(forecast.at_most, target, best, likely)
    if len(forecast.rising) == 1:
        peak = forecast.rising[0][1]
        least = max(_LEAST_STEP, min(_LEARNING_STEP, target / max(peak, 1)))
        safe = max(safe, math.ceil(least * best))
    if likely - safe <= half_tolerance(likely):
        safe = likely
    trusted = not forecast.flat and len(forecast.rising) > 2 and came_true(measured)
    return min(safe, likely if trusted else _STEP * best)


def _beyond(measured: Mapping[int, float], ceiling: int) -> int:
    """Above a size whose bytes were not as forecast: a tolerance further, and twice as far each time that ran."""
    *_, before, best = (0, *sorted(measured))
    gap, widest = best - before, int(_CREEP * best)
    creeping = len(measured) > 2 and gap <= widest
    return min(best + max(tolerance(best), min(2 * gap, widest) if creeping else 0), ceiling)


def _in_bracket(measured: Mapping[int, float], failed: Sequence[int], likely: int, ceiling: int) -> int:
    """Between the largest that ran and the smallest that failed: where the forecast ends, if it leaves that open."""
    best = max(measured)
    if len(failed) >= _MANY or (likely == ceiling and ceiling > _NEAR * best):
        return middle(best, ceiling)
    if likely == ceiling:
        return back_off(best, failed, ceiling)
    if came_true(measured) or likely > best + tolerance(best):
        return likely
    return max(likely, min(_beyond(measured, ceiling), middle(best, ceiling)))


def back_off(best: int, failed: Sequence[int], ceiling: int) -> int:
    """A little below a failure that the forecast had let pass; after many in the middle."""
    return middle(best, ceiling) if len(failed) >= _MANY else max(ceiling + 1 - tolerance(best), middle(best, ceiling))


def middle(best: int, ceiling: int) -> int:
    """Half way to the ceiling, by factors where that is far."""
    return (best + ceiling + 1) // 2 if ceiling < _STEP * best else math.isqrt(best * ceiling)


def _within(needed: Callable[[int], float], target: float, best: int, ceiling: int) -> int:
    """The largest size from `best` to `ceiling` that needs at most `target`; `best` where none does."""
    return best + largest_size(lambda more: needed(best + more) <= target, ceiling - best)
