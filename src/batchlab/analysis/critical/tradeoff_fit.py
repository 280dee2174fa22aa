"""What measured steps say about the time–cost curve: a posterior over its knee and the shape of it.

The posterior is computed on a grid, over ln B₀ (uniform) and both exponents (log-normal priors of `tradeoff.py`), with
ln S_min and the variance of ln S integrated out. It has no random numbers. Everything is in ln S, so errors are
relative. Residuals that are larger than the noise widen every interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchlab.analysis.critical.tradeoff import Shapes, TradeoffCurve, Vector, coarse_shapes, shapes_around
from batchlab.analysis.sweep.noise import CONFIDENCE

MODEL_ERROR = 0.012
"""Of ln S. The family is about 1 % from computed curves, at neighbouring sizes in the same direction; this is added
to the noise, also where that is 0."""
UNKNOWN_NOISE = 0.03
UNKNOWN_FREEDOM = 1
"""Without a known noise: the assumed standard deviation of ln S, which counts as so many residuals."""
KNOWN_FREEDOM = 8
"""A known noise counts as so many residuals. Not more, so that a misfit widens the intervals."""
TAIL_SPREAD = (0.3, 0.2)
"""What is left of samples below the smallest size, and of steps beyond the largest, is known from the curve only up to
a factor: a log-normal one with these standard deviations. Nothing measured speaks for the curve there."""
TAIL_NODES = ((-1.7320508, 1 / 6), (0.0, 2 / 3), (1.7320508, 1 / 6))
"""Three-point Gauss–Hermite quadrature: (standard deviations, weight)."""
REACH = (3.0, 6.0)
"""B₀ lies within e^−3 times the smallest size and e^6 times the largest; further out nothing can be learned."""
COARSE, FINE = 51, 61  # values of ln B₀
NEGLIGIBLE = 9.0
"""Points of the grid this far below the best log posterior are left out of the finer grid."""


@dataclass(frozen=True, slots=True)
class Credible:
    """The median and the central 95 % of a quantity's posterior, as a batch size."""

    median: float
    low: float
    high: float


class TradeoffFit:
    """The posterior given steps at three or more batch sizes.

    `noise_sd` is the relative standard deviation of steps, where it is known.
    """

    def __init__(self, log_batch: Vector, log_steps: Vector, noise_sd: float | None = None) -> None:
        self.log_batch, self.log_steps = log_batch, log_steps
        if noise_sd is None:
            self._freedom, self._variance = UNKNOWN_FREEDOM, UNKNOWN_NOISE**2
        else:
            self._freedom, self._variance = KNOWN_FREEDOM, noise_sd**2 + MODEL_ERROR**2
        first, last = float(log_batch.min()) - REACH[0], float(log_batch.max()) + REACH[1]
        coarse = np.linspace(first, last, COARSE)
        rows, table = coarse_shapes()
        likely = self._log_posterior(table, coarse)[0] > -NEGLIGIBLE
        knees = np.flatnonzero(likely.any(axis=0))
        low, high = max(int(knees[0]) - 1, 0), min(int(knees[-1]) + 1, COARSE - 1)
        self.knees = np.linspace(float(coarse[low]), float(coarse[high]), FINE)
        self.shapes = shapes_around(rows[likely.any(axis=1)])
        log_posterior, self.levels, self.squares = self._log_posterior(self.shapes, self.knees)
        weights = np.exp(log_posterior)
        self.weights = weights / weights.sum()

    def _log_posterior(self, table: Shapes, knees: Vector) -> tuple[Vector, Vector, Vector]:
        """(log posterior with its maximum at 0, best ln S_min, sum of squares): shapes × knees."""
        residuals = self.log_steps - table.steps_at(self.log_batch[None, :] - knees[:, None])
        levels = residuals.mean(axis=-1)
        squares = ((residuals - levels[..., None]) ** 2).sum(axis=-1)
        free = self._freedom + len(self.log_steps) - 1
        log_posterior = table.log_prior[:, None] - free / 2 * np.log(self._freedom * self._variance + squares)
        return log_posterior - log_posterior.max(), levels, squares

    @cached_property
    def twice_steps(self) -> Credible:
        """The batch size that needs twice the fewest steps."""
        table = self.shapes
        left = table.steps_at(self.log_batch.max() - self.knees)
        values = [
            table.batch_of_steps(math.log(2) - left * math.expm1(TAIL_SPREAD[1] * node)) for node, _ in TAIL_NODES
        ]
        return self._credible_over_tails(values)

    @cached_property
    def twice_samples(self) -> Credible:
        """The batch size that needs twice the fewest samples."""
        table = self.shapes
        smallest = self.log_batch.min() - self.knees
        left = table.steps_at(smallest) + smallest - table.least_samples[:, None]
        least = table.least_samples[:, None] + math.log(2)
        values = [table.batch_at(least - left * math.expm1(TAIL_SPREAD[0] * node)) for node, _ in TAIL_NODES]
        return self._credible_over_tails(values)

    def _credible_over_tails(self, log_ratios: Sequence[Vector]) -> Credible:
        values = np.stack([self.knees[None, :] + one for one in log_ratios])
        weights = np.stack([self.weights * weight for _, weight in TAIL_NODES])
        return _credible(values, weights)

    def more_samples(self, base: float, factor: float) -> Credible:
        """The batch size that needs `factor` times the samples of `base`."""
        from_base = math.log(base) - self.knees
        wanted = self.shapes.steps_at(from_base) + from_base + math.log(factor)
        return _credible(self.knees[None, :] + self.shapes.batch_at(wanted), self.weights)

    @property
    def least_squares(self) -> float:
        """The smallest sum of squared residuals over all curves."""
        return float(self.squares.min())

    @cached_property
    def curve(self) -> TradeoffCurve:
        """The most probable curve."""
        shape, at = np.unravel_index(int(np.argmax(self.weights)), self.weights.shape)
        knee, level = float(self.knees[at]), float(self.levels[shape, at])
        residuals = self.log_steps - self.shapes.steps_at(self.log_batch - knee)[shape] - level
        total = float(np.sum((self.log_steps - self.log_steps.mean()) ** 2))
        return TradeoffCurve(
            s_min=math.exp(level),
            e_min=math.exp(level + knee + float(self.shapes.least_samples[shape])),
            knee=math.exp(knee),
            exponents=(float(self.shapes.exponents[shape, 0]), float(self.shapes.exponents[shape, 1])),
            largest_residual=float(np.max(np.abs(residuals))),
            r_squared=1 - float(residuals @ residuals) / total if total > 0 else 0.0,
        )


def _credible(log_batch: Vector, weights: Vector) -> Credible:
    counted = weights > math.exp(-NEGLIGIBLE) * float(weights.max())
    values, shares = log_batch[counted], weights[counted]
    order = np.argsort(values)
    cumulated = np.cumsum(shares[order]) / shares.sum()
    tail = (1 - CONFIDENCE) / 2
    low, median, high = (math.exp(float(np.interp(p, cumulated, values[order]))) for p in (tail, 0.5, 1 - tail))
    return Credible(median, low, high)
