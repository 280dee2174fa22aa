"""What a size needs, by what is traced and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from batchlab.search.memory_curve import MemoryCurve

Point = tuple[int, float]

_LEVER = 0.9
"""Two measured sizes whose ratio is above this are too near each other to extrapolate far from: between 44 and 45
samples an allocator's rounding of 1.5 MB became 55 MB at 8."""

_TOLERANCE = 0.01
"""A gap of this share of a size, or of one sample, is not worth a probe."""

_UNSEEN = 0.1
"""A share of the tolerance by which a measured point may always lie off its curve."""

_KINK = 0.9
"""Three points are more convex than any quadratic if the first slope is below this share of a quadratic's."""


def tolerance(size: int) -> int:
    """Samples within which an answer of this size counts as exact."""
    return max(1, int(_TOLERANCE * size))


def half_tolerance(size: int) -> int:
    """Half of that for a forecast, and half for what it leaves."""
    return int(_TOLERANCE * size / 2)


def needed_bytes(curve: MemoryCurve | None, measured: Mapping[int, int], size: int) -> float:
    """Bytes at a size by the trace and by what was measured: traced bytes plus the offset at this size.

    One measurement gives a constant offset; more give the line through those at the largest size and at the next one
    well below it. Beyond the largest size what is not traced is constant or grows; by two sizes that are near each
    other, at most in proportion. Without a trace sizes between measured ones lie on the line through their
    neighbours, smaller ones on that through the first two, and larger ones where `Forecast` says.
    """
    if curve is None:
        return _untraced_bytes(sorted(measured.items()), size)
    base = curve.at(size)
    offsets = sorted((known, peak - curve.at(known)) for known, peak in measured.items())
    if not offsets:
        return base
    x1, y1 = offsets[-1]
    below = [offset for offset in offsets if offset[0] <= _LEVER * x1]
    if below:
        x0, y0 = below[-1]
        slope = (y1 - y0) / (x1 - x0)
        return base + y1 + (max(slope, 0.0) if size > x1 else slope) * (size - x1)
    if len(offsets) == 1 or size <= x1:
        return base + y1
    x0, y0 = offsets[-2]
    return base + y1 + min(max((y1 - y0) / (x1 - x0), 0.0), max(y1 / x1, 0.0)) * (size - x1)


def _untraced_bytes(measured: Sequence[Point], size: int) -> float:
    if not measured:
        return 0.0
    if size > measured[-1][0] or len(measured) == 1:
        return Forecast.through(dict(measured)).at(size)
    after = next((i for i, (known, _) in enumerate(measured) if known >= size), 0)
    (x0, y0), (x1, y1) = measured[max(after, 1) - 1 : max(after, 1) + 1]
    return y0 + (y1 - y0) * (size - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Bytes beyond the largest measured size. rising: points above the flat part, at least a tenth apart; not empty."""

    rising: tuple[Point, ...]

    @classmethod
    def through(cls, measured: Mapping[int, float]) -> Self:
        """By the points that lie apart and above the flat part."""
        return cls(_rising(_apart(sorted(measured.items()))))

    @property
    def _curvature(self) -> float:
        """Of the parabola through the last three points; 0 where they are concave."""
        if len(self.rising) < 3:
            return 0.0
        (x0, y0), (x1, y1), (x2, y2) = self.rising[-3:]
        return max(((y2 - y1) / (x2 - x1) - (y1 - y0) / (x1 - x0)) / (x2 - x0), 0.0)

    def at(self, size: int) -> float:
        """The most likely bytes at a size beyond the largest point: in proportion, on a line, or on a parabola."""
        x1, y1 = self.rising[-1]
        if len(self.rising) == 1:
            return y1 * size / x1
        x0, y0 = self.rising[-2]
        slope = max((y1 - y0) / (x1 - x0), 0.0)
        return y1 + (size - x1) * (slope + self._curvature * (size - x0))

    def at_most(self, size: int) -> float:
        """Bytes that no ordinary memory exceeds there."""
        x1, y1 = self.rising[-1]
        if len(self.rising) == 1:
            return y1 * (size / x1) ** 2
        x0, y0 = self.rising[-2]
        if len(self.rising) == 2:
            return y1 + max(y1 - y0, 0.0) * (size**2 - x1**2) / (x1**2 - x0**2)
        first = self.rising[-3][0]
        hidden = _UNSEEN * tolerance(x0) * (y1 - y0) / (x1 - x0) / ((x0 - first) * (x1 - x0))
        return self.at(size) + max(hidden, 0.0) * (size - x1) * (size - x0)

    @property
    def flat(self) -> bool:
        """Whether the last point is no higher than the one before."""
        return len(self.rising) > 1 and self.rising[-1][1] <= self.rising[-2][1]


def _apart(points: Sequence[Point]) -> list[Point]:
    """Points, from the largest down, whose sizes differ by at least a tenth."""
    kept = [points[-1]]
    for point in reversed(points[:-1]):
        if point[0] <= _LEVER * kept[-1][0]:
            kept.append(point)
    return kept[::-1]


def _rising(points: list[Point]) -> tuple[Point, ...]:
    """Without leading points below a kink: those after which memory rises faster than any quadratic does."""
    while len(points) > 2:
        (x0, y0), (x1, y1), (x2, y2) = points[:3]
        quadratic = (y2 - y1) / (x2 - x1) * (x0 + x1) / (x1 + x2)
        if (y1 - y0) / (x1 - x0) >= _KINK * quadratic:
            break
        del points[: 2 if len(points) == 3 else 1]
    return tuple(points)
