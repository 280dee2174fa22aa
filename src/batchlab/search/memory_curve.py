"""Bytes against micro-batch size, known at some sizes.

The peak of a training step is the largest of its phases. Each is affine in the size: the optimizer's step hardly grows,
forward and backward do. So the peak is convex and made of straight pieces, and a line through two small sizes can lie
on the wrong piece: through 2 and 4 it overshot the largest size of a decoder by 14 %. Known by phase, two sizes on
either side of a bend are enough to know where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

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

    def straight_at(self, size: int, tolerance: float) -> bool:
        """Whether bytes at a size between known ones are as good as known: two sizes on one side of it forecast every
        phase of the next one on the other side within this share of its bytes, so that none bends between them."""
        right = next((i for i, known in enumerate(self.sizes) if known > size), 0)
        if right == 0:
            return False

        def forecast(pair: int, beyond: int) -> bool:
            known, phases = self.points[beyond]
            return all(
                abs(there - value) <= tolerance * max(phases)
                for there, value in zip(self._phases(known, pair), phases, strict=True)
            )

        last = len(self.points) - 1
        return (right >= 2 and forecast(right - 1, right)) or (right < last and forecast(right + 1, right - 1))

    def largest_within(self, budget: float, most: int) -> int:
        """The largest size of at most `most` that needs at most `budget` bytes; 0 for none."""
        return largest_size(lambda size: self.at(size) <= budget, most)

    def likely_largest_within(self, budget: float, most: int) -> int:
        """The same where the curve may bend between the two known sizes on either side of it: there each phase is the
        parabola through these two and the nearest third (Muller's method), or the line where that is concave."""
        low = self.largest_within(budget, most)
        if len(self.points) < 3:
            return low
        last = len(self.points) - 1
        right = max(next((i for i, size in enumerate(self.sizes) if size > low), last), 1)
        left = right - 1
        others = [i for i in (left - 1, right + 1) if 0 <= i <= last]
        third = min(others, key=lambda i: abs(math.log(self.sizes[i] / max(low, 1))))
        first = min(left, third)
        sizes, values = zip(*self.points[first : first + 3], strict=True)
        phases = [_parabola(list(zip(sizes, phase, strict=True))) for phase in zip(*values, strict=True)]
        high = most if self.sizes[right] <= low else min(self.sizes[right] - 1, most)
        return low + largest_size(lambda more: max(bytes_at(low + more) for bytes_at in phases) <= budget, high - low)

    def _phases(self, size: float, index: int) -> tuple[float, ...]:
        """Every phase at `size` on the line through the known sizes `index − 1` and `index`."""
        if len(self.points) == 1:
            return self.points[0][1]
        (x0, before), (x1, after) = self.points[index - 1 : index + 1]
        return tuple(y0 + (y1 - y0) * (size - x0) / (x1 - x0) for y0, y1 in zip(before, after, strict=True))


def _parabola(points: Sequence[tuple[int, float]]) -> Callable[[int], float]:
    """Through three points by ascending sizes; the line through the last two where that is concave."""
    (x0, y0), (x1, y1), (x2, y2) = points
    slope = (y2 - y1) / (x2 - x1)
    curvature = max((slope - (y1 - y0) / (x1 - x0)) / (x2 - x0), 0.0)
    return lambda size: y1 + (size - x1) * (slope + curvature * (size - x2))


def largest_size(holds: Callable[[int], bool], most: int) -> int:
    """The largest size from 1 to `most` for which `holds`, which holds up to some size and for none above; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
