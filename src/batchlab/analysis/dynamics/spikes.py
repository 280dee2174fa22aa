"""Loss spikes: where a curve exceeds its running median by more than its own noise.

A point is a spike where it lies above the running median of its neighbourhood by more than DEVIATIONS robust standard
deviations and by more than SHARE of that median's range. The window is symmetric and shrinks at the ends, so that a
steady fall, however steep, equals its own median. The deviation is 1.4826 · the median absolute distance around
the point (Hampel 1974), or the same of the changes from point to point ÷ √2 where that is larger: on a smooth curve the
distances are nearly 0, but the changes are not.

Limits. The first and the last point have no neighbours on one side and are never spikes. A loss that stays up for
longer than half a window is a rise, not a spike. A spike shorter than the interval that a point stands for must be in
its value; metrics keep the highest step of each row for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HALF_WINDOW = 7
NOISE_HALF_WINDOW = 25
DEVIATIONS = 8.0
SHARE = 0.05

LEAST_POINTS = 5

_Array = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spike:
    """`index` of the highest point, its `height` above the running median, and the `length` in points."""

    index: int
    height: float
    length: int


def find_spikes(values: Sequence[float]) -> tuple[Spike, ...]:
    """Spikes of an evenly spaced curve, in order. Values must be finite; fewer than LEAST_POINTS have no spikes."""
    curve = np.asarray(values, dtype=np.float64)
    if len(curve) < LEAST_POINTS:
        return ()
    median = running_median(curve, HALF_WINDOW)
    above = curve - median
    changes = np.diff(curve, append=curve[-1]) / math.sqrt(2)
    least = SHARE * float(median.max() - median.min())
    out = np.flatnonzero((above > least) & (above > 0))
    for noise in (above, changes):  # its windows are the costly part, so only of the points that are left
        out = out[above[out] > DEVIATIONS * 1.4826 * _running_size(noise, out)]
    spikes = []
    for group in np.split(out, np.flatnonzero(np.diff(out) > 1) + 1):
        if len(group):
            top = int(group[np.argmax(above[group])])
            spikes.append(Spike(top, float(above[top]), len(group)))
    return tuple(spikes)


def running_median(curve: _Array, half: int) -> _Array:
    """Median of each point and as many neighbours on either side, at most `half`, as it has on both."""
    place = np.arange(len(curve))
    return _medians(curve, place, half, np.minimum(place, place[::-1]))


def _running_size(values: _Array, places: _Places) -> _Array:
    """Median of the absolute values around each of these points."""
    return _medians(np.abs(values), places, NOISE_HALF_WINDOW, np.full(len(places), NOISE_HALF_WINDOW))


def _medians(values: _Array, places: _Places, half: int, reach: _Places) -> _Array:
    """Median of the points at most min(half, reach) away from each of `places`; gaps of a window are sorted last."""
    offsets = np.arange(-half, half + 1)
    index = places[:, None] + offsets
    inside = (np.abs(offsets) <= reach[:, None]) & (index >= 0) & (index < len(values))
    windows = np.sort(np.where(inside, values[index.clip(0, len(values) - 1)], np.inf), axis=1)
    rows, count = np.arange(len(places)), inside.sum(axis=1)
    medians: _Array = (windows[rows, (count - 1) // 2] + windows[rows, count // 2]) / 2
    return medians
