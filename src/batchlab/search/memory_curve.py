"""Bytes against micro-batch size, known at some sizes.

The peak of a training step is the largest of its phases. Each is affine in the size: the optimizer's step hardly grows,
forward and backward do. So the peak is convex and made of straight pieces, and a line through two small sizes can lie
on the wrong piece: through 2 and 4 it overshot the largest size of a decoder by 14 %. Known by phase, two sizes on
either side of a bend are enough to know where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def largest_within(self, budget: float, most: int) -> int:
        """The largest size of at most `most` that needs at most `budget` bytes; 0 for none."""
        return largest_size(lambda size: self.at(size) <= budget, most)

    def _phases(self, size: float, index: int) -> tuple[float, ...]:
        """Every phase at `size` on the line through the known sizes `index − 1` and `index`."""
        if len(self.points) == 1:
            return self.points[0][1]
        (x0, before), (x1, after) = self.points[index - 1 : index + 1]
        return tuple(y0 + (y1 - y0) * (size - x0) / (x1 - x0) for y0, y1 in zip(before, after, strict=True))


def largest_size(holds: Callable[[int], bool], most: int) -> int:
    """The largest size from 1 to `most` for which `holds`, which holds up to some size and for none above; 0: none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
