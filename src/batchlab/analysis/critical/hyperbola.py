"""The time–cost curve S = S_min (1 + B_crit / B): its fit, its profile, and whether it holds.

Source: McCandlish et al. 2018 (arXiv:1812.06162), eq. 2.11. Everything is in ln S, so errors are relative. For a given
B_crit the best ln S_min is a mean; one dimension is left, and its limits B_crit → 0 (steps do not depend on the batch)
and B_crit → ∞ (S ∝ 1/B) are ordinary points of it. A confidence set that reaches a limit is one-sided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile

Vector = npt.NDArray[np.float64]

RESOLUTION = 0.002
"""Relative. However smooth they look, steps are not known better than this: losses are evaluated every so often."""
MISFIT = 0.07
"""A largest residual below this changes no decision, however significant it is. On the ill-conditioned quadratic of the
tests, where the curve is wrong, the largest is 8 %."""
MISFIT_LEVEL = 0.01
BEYOND = 12.0
"""B_crit is searched up to a factor e^±12 beyond the sizes; further out the curve equals one of its limits to 1e-5."""
GRID = 241


@dataclass(frozen=True, slots=True)
class Hyperbola:
    """S = s_min·(1 + b_crit/B), by least squares in ln S."""

    s_min: float
    b_crit: float
    residual_sd: float  # of ln S
    largest_residual: float
    r_squared: float  # of ln S
    n: int

    def steps(self, batch: float) -> float:
        return self.s_min * (1 + self.b_crit / batch)

    def samples(self, batch: float) -> float:
        return self.s_min * (batch + self.b_crit)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why the curve does not hold: residuals beyond the known noise, or where that is None a knee of another shape."""

    largest_residual: float  # of ln S
    noise_sd: float | None


@dataclass(frozen=True, slots=True)
class Limits:
    """A 95 % confidence set; None where it has no end on that side."""

    low: float | None
    high: float | None


class Profile:
    """Residual sum of squares as a function of ln B_crit, and what follows from it.

    `noise_sd` is the relative standard deviation of steps, where it is known; otherwise it is estimated from the
    residuals with n − 2 degrees of freedom.
    """

    def __init__(self, batch: Vector, log_steps: Vector, noise_sd: float | None = None) -> None:
        self.log_batch = np.log(batch)
        self.log_steps = log_steps
        self.noise_sd = noise_sd
        low, high = float(self.log_batch.min()) - BEYOND, float(self.log_batch.max()) + BEYOND
        grid = np.linspace(low, high, GRID)
        for _ in range(4):
            best = int(np.argmin(self.squares(grid)))
            self.best = float(grid[best])
            self.least = float(self.squares(grid[best : best + 1])[0])
            spacing = float(grid[1] - grid[0])
            grid = np.linspace(self.best - spacing, self.best + spacing, 41)
        self.grid = np.linspace(low, high, GRID)
        self.squares_flat = float(np.sum((log_steps - log_steps.mean()) ** 2))
        scaled = log_steps + self.log_batch
        self.squares_ideal = float(np.sum((scaled - scaled.mean()) ** 2))

    @property
    def n(self) -> int:
        return len(self.log_steps)

    def level(self, u: Vector) -> Vector:
        """The best ln S_min at each ln B_crit."""
        return np.asarray(np.mean(self.log_steps - _rise(u, self.log_batch), axis=1))

    def squares(self, u: Vector) -> Vector:
        residuals = self.log_steps - _rise(u, self.log_batch)
        return np.asarray(np.sum((residuals - residuals.mean(axis=1, keepdims=True)) ** 2, axis=1))

    @cached_property
    def threshold(self) -> float:
        """Sums of squares up to this belong to the 95 % confidence set: t² with n − 2 degrees of freedom, or normal."""
        if self.noise_sd is not None:
            return self.least + (1.959964 * max(self.noise_sd, RESOLUTION)) ** 2
        t = t_quantile(0.5 + CONFIDENCE / 2, self.n - 2)
        return self.least + t**2 * max(self.least / (self.n - 2), RESOLUTION**2)

    @property
    def reaches_flat(self) -> bool:
        """Whether B_crit → 0 remains possible."""
        return self.squares_flat <= self.threshold

    @property
    def reaches_ideal(self) -> bool:
        """Whether B_crit → ∞ remains possible."""
        return self.squares_ideal <= self.threshold

    @property
    def best_is_ideal(self) -> bool:
        """Whether no finite B_crit fits better than S ∝ 1/B, but for the resolution of the steps."""
        return self.squares_ideal <= self.least + self.n * RESOLUTION**2 / 100

    @cached_property
    def b_crit(self) -> Limits:
        """Confidence set of B_crit."""
        low = None if self.reaches_flat else self._crossing(self.best, float(self.grid[0]))
        high = None if self.reaches_ideal else self._crossing(self.best, float(self.grid[-1]))
        return Limits(None if low is None else math.exp(low), None if high is None else math.exp(high))

    def level_limits(self, *, of_samples: bool) -> Limits:
        """Confidence set of S_min, or of E_min = S_min·B_crit, over everything that B_crit may be."""
        first = float(self.grid[0]) if self.b_crit.low is None else math.log(self.b_crit.low)
        last = float(self.grid[-1]) if self.b_crit.high is None else math.log(self.b_crit.high)
        inside = np.append(np.linspace(first, last, GRID), self.best)
        spread = np.sqrt(np.maximum(self.threshold - self.squares(inside), 0.0) / self.n)
        centre = self.level(inside) + (inside if of_samples else 0.0)
        low, high = math.exp(float(np.min(centre - spread))), math.exp(float(np.max(centre + spread)))
        no_low = self.b_crit.low is None if of_samples else self.b_crit.high is None
        return Limits(None if no_low else low, high)

    @cached_property
    def fit(self) -> Hyperbola:
        point = np.array([self.best])
        residuals = self.log_steps - _rise(point, self.log_batch)[0] - self.level(point)[0]
        return Hyperbola(
            s_min=math.exp(float(self.level(point)[0])),
            b_crit=math.exp(self.best),
            residual_sd=math.sqrt(self.least / max(self.n - 2, 1)),
            largest_residual=float(np.max(np.abs(residuals))),
            r_squared=1 - self.least / self.squares_flat if self.squares_flat > 0 else 0.0,
            n=self.n,
        )

    def predict(self, log_batch: float) -> tuple[float, float]:
        """ln S of one more run at ln B, and its standard error: noise and the uncertainty of the fit, linearised."""
        point = np.array([self.best])
        here = np.array([log_batch])
        value = float(self.level(point)[0] + _rise(point, here)[0, 0])
        share, at_point = (1 / (1 + np.exp(b - self.best)) for b in (self.log_batch, here))
        columns = np.column_stack([np.ones(self.n), share])
        row = np.array([1.0, float(at_point[0])])
        leverage = float(row @ np.linalg.pinv(columns.T @ columns) @ row)
        sd = self.fit.residual_sd if self.noise_sd is None else self.noise_sd
        return value, max(sd, RESOLUTION) * math.sqrt(1 + leverage)

    def misfit(self) -> Misfit | None:
        """Why the curve does not hold; None where nothing contradicts it.

        One of two tests at 1 %, and only where a residual exceeds 7 %: residuals against the known noise (χ²), else one
        more term against the remaining residuals. The term is the derivative of a knee that is sharper or blunter than
        the hyperbola's, (1 + xᵖ)^(1/p) with x = B_crit/B, at p = 1: minus the entropy of x/(1 + x).
        """
        from scipy.special import chdtrc

        worst = self.fit.largest_residual
        if worst <= MISFIT:
            return None
        if self.noise_sd is not None:
            noise = max(self.noise_sd, RESOLUTION)
            if chdtrc(self.n - 2, self.least / noise**2) < MISFIT_LEVEL:
                return Misfit(worst, noise)
            return None
        if self.n < 5:
            return None
        share = 1 / (1 + np.exp(self.log_batch - self.best))
        entropy = -share * np.log(share) - (1 - share) * np.log1p(-share)
        columns = np.column_stack([np.ones(self.n), share, entropy])
        residuals = self.log_steps - _rise(np.array([self.best]), self.log_batch)[0]
        coefficients, *_ = np.linalg.lstsq(columns, residuals, rcond=None)
        rest = residuals - columns @ coefficients
        variance = max(float(rest @ rest) / (self.n - 3), RESOLUTION**2)
        error = math.sqrt(variance * float(np.linalg.pinv(columns.T @ columns)[2, 2]))
        if error > 0 and abs(float(coefficients[2])) > t_quantile(1 - MISFIT_LEVEL / 2, self.n - 3) * error:
            return Misfit(worst, None)
        return None

    def _crossing(self, inside: float, outside: float) -> float:
        """ln B_crit where the sum of squares crosses the threshold, outermost on that side, by bisection."""
        steps = np.linspace(inside, outside, GRID)
        within = np.flatnonzero(self.squares(steps) <= self.threshold)
        last = int(within[-1]) if len(within) else 0
        if last == GRID - 1:
            return outside
        a, b = float(steps[last]), float(steps[last + 1])
        for _ in range(40):
            middle = (a + b) / 2
            a, b = (middle, b) if float(self.squares(np.array([middle]))[0]) <= self.threshold else (a, middle)
        return a


def fit_hyperbola(batch: Vector, steps: Vector) -> Hyperbola:
    """The best curve through all points given, without any test of whether it holds."""
    return Profile(np.asarray(batch, dtype=np.float64), np.log(np.asarray(steps, dtype=np.float64))).fit


def _rise(u: Vector, log_batch: Vector) -> Vector:
    """ln(1 + B_crit/B), one row for each ln B_crit."""
    return np.asarray(np.logaddexp(0.0, u[:, None] - log_batch[None, :]), dtype=np.float64)
