"""Bytes against micro-batch size, known at some sizes.

The peak of a training step is the largest of its phases. Each is affine in the size: the optimizer's step hardly grows,
forward and backward do. So the peak is convex and made of straight pieces, and a line through two small sizes can lie
on the wrong piece: through 2 and 4 it overshot the largest size of a decoder by 14 %. Known by phase, two sizes on
either side of a bend are enough to know where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import Self

_LEVER = 0.9
"""Two measured sizes whose ratio is above this are too near each other to extrapolate from: between 44 and 45 samples
an allocator's rounding of 1.5 MB became 55 MB at 8."""

_BEND = 0.1
"""Two pieces of an untraced curve whose bytes per sample differ by more than this share are not one line."""

_SAME = 1e-6
"""Below the knee the peak lies more than this share above the last piece: more than rounding."""


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """(size, bytes of each phase) with ascending sizes, at least one, and the same phases in the same order at each."""

    points: tuple[tuple[int, tuple[float, ...]], ...]

    @classmethod
    def through(cls, points: Iterable[tuple[int, tuple[float, ...]]]) -> Self:
        """The curve through these points in any order."""
        return cls(tuple(sorted(dict(points).items())))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for size, _ in self.points)

    def at(self, size: float) -> float:
        """Bytes at a size: each phase on the line between its neighbours, beyond the ends on its first or last one."""
        index = next((i for i, (known, _) in enumerate(self.points) if known >= size), len(self.points) - 1)
        return max(self._phases(size, max(index, 1)))

    @property
    def slope(self) -> float:
        """Bytes per sample beyond the largest known size, 0 where only one size is known."""
        largest = self.sizes[-1]
        return self.at(2 * largest + 1) - self.at(2 * largest)

    @property
    def knee(self) -> int:
        """The smallest size from which on the peak lies on its last piece."""
        last = len(self.points) - 1
        tops = self._phases(self.sizes[-1], last)
        top = tops.index(max(tops))

        def off_piece(size: int) -> bool:
            return self.at(size) > (1 + _SAME) * self._phases(size, last)[top]

        return largest_size(off_piece, self.sizes[-1]) + 1

    def largest_within(self, budget: float, most: int) -> int:
        """The largest size of at most `most` that needs at most `budget` bytes; 0 for none."""
        return largest_size(lambda size: self.at(size) <= budget, most)

    def _phases(self, size: float, index: int) -> tuple[float, ...]:
        """Every phase at `size` on the line through the known sizes `index − 1` and `index`."""
        if len(self.points) == 1:
            return self.points[0][1]
        (x0, before), (x1, after) = self.points[index - 1 : index + 1]
        return tuple(y0 + (y1 - y0) * (size - x0) / (x1 - x0) for y0, y1 in zip(before, after, strict=True))


def needed_bytes(curve: MemoryCurve | None, measured: Mapping[int, int], size: float) -> float:
    """Bytes at a size by the trace and by what was measured: traced bytes plus the offset at this size.

    One measurement gives a constant offset; more give the line through those at the largest size and at the next one
    well below it. Without a trace one measurement gives a proportion, and more the line through all that lie above the
    bend, shifted so that no measured size needs more than it says.
    """
    if curve is None:
        return _untraced_bytes(sorted(measured.items()), size)
    base = curve.at(size)
    offsets = sorted((known, peak - curve.at(known)) for known, peak in measured.items())
    if not offsets:
        return base
    x1, y1 = offsets[-1]
    below = [offset for offset in offsets if offset[0] <= _LEVER * x1]
    if not below:
        return base + y1
    x0, y0 = below[-1]
    return base + y1 + (y1 - y0) * (size - x1) / (x1 - x0)


def _untraced_bytes(measured: Sequence[tuple[int, int]], size: float) -> float:
    """By the line that least squares draw through the measured sizes, without those below the bend."""
    if not measured:
        return 0.0
    largest, peak = measured[-1]
    if measured[0][0] > _LEVER * largest:
        return peak * size / largest
    points = list(measured)
    while len(points) > 2 and _bends(points):
        points.pop(0)
    slope, intercept = linear_regression(*zip(*points, strict=True))
    above = max(y - intercept - slope * x for x, y in points)
    return intercept + above + slope * size


def _bends(points: Sequence[tuple[int, int]]) -> bool:
    """Whether the bytes per sample to the next size are well below those between the largest two."""
    (x0, y0), (x1, y1) = points[:2]
    (x2, y2), (x3, y3) = points[-2:]
    return (y1 - y0) / (x1 - x0) < (1 - _BEND) * (y3 - y2) / (x3 - x2)


def largest_size(holds: Callable[[int], bool], most: int) -> int:
    """The largest size from 1 to `most` for which `holds`, which holds up to some size and for none above; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
