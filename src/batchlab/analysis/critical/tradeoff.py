"""Curves of steps against batch size whose knee is not the textbook's.

    S = S_min (1 + B_crit/B)                                                  the textbook curve
    −d ln S / d ln B = (1 + (B/B₀)^a)^(−b/a)                                  the family used here

On the textbook curve (McCandlish et al. 2018, arXiv:1812.06162, eq. 2.11) a = b = 1. It follows from a local quadratic
model with one effective curvature. With a spectrum of curvatures the knee has another shape: computed curves of noisy
quadratics and of linear regression by SGD leave the textbook curve by up to 15 % (benchmarks/critical_batch), and this
family by about 1 %. The samples S·B leave their minimum as B^a, and the steps reach theirs as B^−b.

The family is a description and not a theory. It is monotone and convex in ln B: steps never grow with the batch size,
and samples never shrink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

SPACING = 0.05
REACH = 30.0
"""Curves are tabulated at ln(B/B₀) from −REACH to REACH; beyond, all of them are straight lines to 1e-5."""
EXPONENT_CENTRE = (1.2, 0.9)  # of (a, b)
EXPONENT_SPREAD = (0.5, 0.6)  # standard deviations of their logarithms
EXPONENTS = 31
"""Values of each exponent, up to 2.5 standard deviations from the centre."""
COARSE = 3
"""Every third exponent is enough to see which matter."""
MOST = 11
"""Values of each exponent that are looked at in the end; where more of them matter, every second or third."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """All shapes at B₀ = 1 and S_min = 1; one row for each pair (a, b).

    `steps` is ln S on the grid of ln B, and `least_samples` is ln E_min. `log_prior` is up to a constant.
    """

    exponents: Vector  # (a, b)
    steps: Vector
    least_samples: Vector
    log_prior: Vector

    def rows(self, chosen: npt.NDArray[np.intp]) -> Shapes:
        """The table of some of the shapes."""
        return Shapes(self.exponents[chosen], self.steps[chosen], self.least_samples[chosen], self.log_prior[chosen])

    def steps_at(self, log_ratio: Vector) -> Vector:
        """ln S of every shape at ln(B/B₀): shapes first, then the shape of `log_ratio`."""
        place = np.clip((log_ratio + REACH) / SPACING, 0, self.steps.shape[1] - 1.001)
        index = place.astype(np.intp)
        share = place - index
        return np.asarray(self.steps[:, index] * (1 - share) + self.steps[:, index + 1] * share)

    def batch_at(self, log_samples: Vector) -> Vector:
        """ln(B/B₀) at which each shape's samples reach `log_samples`; a row for each shape."""
        grid = log_grid()
        return np.array(
            [np.interp(wanted, row + grid, grid) for wanted, row in zip(log_samples, self.steps, strict=True)]
        )

    def batch_of_steps(self, log_steps: Vector) -> Vector:
        """ln(B/B₀) at which each shape's steps are down to `log_steps`; a row for each shape."""
        grid = log_grid()
        return np.array([np.interp(-wanted, -row, grid) for wanted, row in zip(log_steps, self.steps, strict=True)])


@cache
def log_grid() -> Vector:
    """ln(B/B₀) of the table."""
    return np.asarray(np.arange(-REACH, REACH + SPACING / 2, SPACING))


@cache
def shapes() -> Shapes:
    """The table of all pairs of exponents, with a log-normal prior around those of known problems."""
    deviations = np.linspace(-2.5, 2.5, EXPONENTS)
    small, large = (each.ravel() for each in np.meshgrid(deviations, deviations, indexing="ij"))
    a = EXPONENT_CENTRE[0] * np.exp(EXPONENT_SPREAD[0] * small)
    b = EXPONENT_CENTRE[1] * np.exp(EXPONENT_SPREAD[1] * large)
    return tabulate(a, b, -(small**2 + large**2) / 2)


@cache
def coarse_shapes() -> tuple[npt.NDArray[np.intp], Shapes]:
    """(rows of `shapes()`, their table) for a first look."""
    chosen = _rows(np.arange(0, EXPONENTS, COARSE), np.arange(0, EXPONENTS, COARSE))
    return chosen, shapes().rows(chosen)


def shapes_around(chosen: npt.NDArray[np.intp]) -> Shapes:
    """The table between the extreme exponents of these rows of `shapes()` and a coarse step more, up to 11 each."""
    return shapes().rows(_rows(*(_between(each) for each in np.divmod(chosen, EXPONENTS))))


def _between(index: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    first, last = max(int(index.min()) - COARSE, 0), min(int(index.max()) + COARSE, EXPONENTS - 1)
    return np.arange(first, last + 1, math.ceil((last - first + 1) / MOST))


def _rows(of_a: npt.NDArray[np.intp], of_b: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return np.asarray(np.add.outer(of_a * EXPONENTS, of_b).ravel())


def tabulate(a: Vector, b: Vector, log_prior: Vector) -> Shapes:
    """The table of these exponents, by the trapezoidal rule from large batches to small."""
    grid = log_grid()
    slope = np.exp(-(b / a)[:, None] * np.logaddexp(0.0, a[:, None] * grid[None, :]))
    pieces = (slope[:, 1:] + slope[:, :-1]) * SPACING / 2
    beyond = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
    steps = np.hstack([beyond, np.zeros((len(a), 1))]) + (slope[:, -1] / b)[:, None]
    return Shapes(np.column_stack([a, b]), steps, (steps + grid)[:, 0], log_prior)


@dataclass(frozen=True, slots=True)
class TradeoffCurve:
    """One curve of the family, with what it leaves unexplained."""

    s_min: float
    e_min: float
    knee: float  # B₀
    exponents: tuple[float, float]  # (a, b)
    largest_residual: float  # of ln S
    r_squared: float  # of ln S

    def steps(self, batch: float) -> float:
        table = _one_shape(*self.exponents)
        return self.s_min * math.exp(float(table.steps_at(np.array([math.log(batch / self.knee)]))[0, 0]))

    def samples(self, batch: float) -> float:
        return batch * self.steps(batch)


@cache
def _one_shape(a: float, b: float) -> Shapes:
    return tabulate(np.array([a]), np.array([b]), np.zeros(1))
