"""A power law through a few measured optima, its exponent averaged with what is published about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchlab.scaling.published import Exponent

OPTIMUM_ERROR = 0.3
"""Standard error of one measured optimum in doublings: a grid spaced by one doubling knows it to 1/√12 = 0.29."""

_Z95 = 1.96


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y = y0·(x/x0)^exponent through `n` points; `low` and `high` bound the exponent at 95 %."""

    exponent: float
    low: float
    high: float
    n: int
    x0: float
    y0: float
    measured: float | None  # least-squares exponent of the points alone; None with fewer than two distinct x
    doublings: float  # standard error of one point
    exponent_sd: float

    def at(self, x: float) -> tuple[float, float, float]:
        """y at x with a 95 % interval for an optimum that would be measured there."""
        away = math.log2(x / self.x0)
        value = self.y0 * 2.0 ** (self.exponent * away)
        sd = math.sqrt(self.doublings**2 * (1 + 1 / self.n) + (self.exponent_sd * away) ** 2)
        return value, value * 2.0 ** (-_Z95 * sd), value * 2.0 ** (_Z95 * sd)


def fit_power_law(
    points: Sequence[tuple[float, float]], published: Exponent, doublings: float = OPTIMUM_ERROR
) -> PowerLaw:
    """Log-log least squares through (x, y) points, its exponent averaged with the published one by inverse variance.

    `doublings` is the standard error of each y; scatter about the line larger than that replaces it. Two budgets close
    together know an exponent far worse than the literature does, many far apart far better: the weights reflect it.
    With one point, or equal x, the published exponent stands alone. ValueError without points or with one not above
    zero.
    """
    if not points or any(not (math.isfinite(v) and v > 0) for point in points for v in point):
        raise ValueError("a power law needs at least one point, all of them finite and above zero")
    n = len(points)
    xs, ys = [math.log2(x) for x, _ in points], [math.log2(y) for _, y in points]
    x_mean, y_mean = sum(xs) / n, sum(ys) / n
    spread = sum((x - x_mean) ** 2 for x in xs)
    measured = None
    exponent, sd = published.mean, published.sd
    if spread > 1e-12:
        measured = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
        if n > 2:
            squares = sum((y - y_mean - measured * (x - x_mean)) ** 2 for x, y in zip(xs, ys, strict=True))
            doublings = max(doublings, math.sqrt(squares / (n - 2)))
        own, theirs = spread / doublings**2, 1 / published.sd**2
        exponent = (own * measured + theirs * published.mean) / (own + theirs)
        sd = 1 / math.sqrt(own + theirs)
    return PowerLaw(
        exponent, exponent - _Z95 * sd, exponent + _Z95 * sd, n, 2.0**x_mean, 2.0**y_mean, measured, doublings, sd
    )
