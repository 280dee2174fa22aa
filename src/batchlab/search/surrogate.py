"""What a few runs say about the loss over batch size × learning rate: many possible basins, weighed by the evidence.

The loss of a training run over (log2 batch size, log2 learning rate) is a skewed valley, and a handful of runs is too
few to learn that from nothing. So the model is: loss in percent = level + s · basin(position, shape) + residual, where
the residual is a Gaussian process with a Matérn-5/2 kernel. Some thousand basins are drawn once from a weak prior
(Sobol, so always the same ones), and every prediction is their mean, weighed by likelihood. Nothing is optimised,
nothing can fail to converge.

The shape of a basin, in doublings u and v from its lowest point:
- In the learning rate it is 2·(exp(k·u) − 1 − k·u)/k² (LINEX; Zellner 1986), k the skew: u² near the bottom, further
  away exponential towards too high and only linear towards too low. With k = 1, a learning rate that is two times too
  high costs twice what one two times too low costs; four times too high, four times.
- Its ridge, the best learning rate at each batch size, is lr_max / (1 + B_knee/B)^a, a the slope: rising below the
  knee, flat above (McCandlish et al. 2018, arXiv:1812.06162, eq. 2.5; for Adam its appendix E has 0.5 ≤ a ≤ 1).
- In the batch size, along the ridge, it is LINEX again, with a skew to either side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BASINS = 2048
"""A power of two, for Sobol's sequence."""

STEEPNESS = tuple(2.0**i for i in range(-3, 6))
"""s in percent of the loss, one doubling from the best learning rate: near 0.5 for language models, far above for small
or easy problems."""

STEEPNESS_CENTRE, STEEPNESS_SD = 0.5, 2.0
"""Median of the prior over s, and its standard deviation in doublings."""

SKEW = 0.9
"""Prior mean of k of the learning rate."""

SLOPE = 0.75
"""Prior mean of a, between the two bounds for Adam."""

OVER_BATCH = 0.5
"""Prior median of the steepness in the batch size over that in the learning rate: retuned, it matters less."""

RESIDUAL = (0.15, 0.3, 0.6, 1.2, 2.4)
"""Standard deviations of the residual, in units of s. Several, so that a surface that is not a basin is noticed: the
evidence then favours the larger ones, the uncertainty grows and the search goes on."""

RESIDUAL_CENTRE, RESIDUAL_SD = 0.3, 1.0
"""Median of the prior over them, and its standard deviation in doublings."""

LENGTHSCALE = 2.0
"""Doublings over which the residual is similar, in both directions."""

FAR = 0.2
"""A loss this far above the best one is trusted to this share of the distance: the basin is a model of the bottom."""

SEED_NOISE = 0.05
"""Standard deviation over seeds in percent of the loss, where none was measured (0.043 over 8 runs of a 124M model)."""

LEAST_NOISE = 0.01
"""Percent; keeps the covariance well away from singular."""

DIVERGES = 5.0
"""Excess loss, in units of s, at which a learning rate is as likely to diverge as not."""

MISJUDGED = 0.05
"""Probability that a divergence says nothing about the learning rate, which bounds its penalty."""

KEPT = 256
"""Weighted triples of basin, steepness and residual that predictions are made from."""


@dataclass(frozen=True, slots=True)
class Basins:
    """Possible surfaces, an array per parameter: `batch` and `rate` (log2) where the loss is lowest, `skew` k of the
    learning rate, `slope` a and `knee` (doublings above `batch`) of its ridge, `over_batch` steepness in the batch size
    relative to that in the learning rate, `batch_skew` k of the batch size."""

    batch: Floats
    rate: Floats
    skew: Floats
    slope: Floats
    knee: Floats
    over_batch: Floats
    batch_skew: Floats

    def rate_excess(self, batch: Floats, rate: Floats) -> Floats:
        """Basins × points: excess of each point over the best learning rate at its batch size, in units of s."""
        u = rate[None, :] - self.ridge(batch)
        return linex(u, self.skew[:, None])

    def excess(self, batch: Floats, rate: Floats) -> Floats:
        """Basins × points: excess of each point over the lowest loss, in units of s."""
        v = batch[None, :] - self.batch[:, None]
        return self.rate_excess(batch, rate) + self.over_batch[:, None] * linex(v, self.batch_skew[:, None])

    def ridge(self, batch: Floats) -> Floats:
        """Basins × points: log2 of the best learning rate at each batch size."""
        knee = (self.batch + self.knee)[:, None]
        at = np.logaddexp2(0.0, knee - batch[None, :])
        return (self.rate + self.slope * np.logaddexp2(0.0, self.knee))[:, None] - self.slope[:, None] * at

    def take(self, chosen: NDArray[np.intp]) -> Basins:
        """The basins at the given indices."""
        return Basins(*(getattr(self, name)[chosen] for name in self.__slots__))

    def where(self, chosen: NDArray[np.bool_], other: Basins) -> Basins:
        """These parameters where `chosen` is true, the other ones where it is not."""
        return Basins(*(np.where(chosen, getattr(self, name), getattr(other, name)) for name in self.__slots__))

    def moved(self, batch: Floats | float, rate: Floats | float) -> Basins:
        """The same basins at another position."""
        return replace(self, batch=self.batch + batch, rate=self.rate + rate)


def linex(u: Floats, k: Floats) -> Floats:
    """2·(exp(k·u) − 1 − k·u)/k², whose curvature at 0 is 2; u² at k = 0. Grows linearly past k·u = 6."""
    k = np.where(np.abs(k) < 1e-3, 1e-3, k)
    z = k * u
    capped = np.minimum(z, 6.0)
    grown = np.exp(capped)
    value = 2 * (grown * (1 + (z - capped)) - 1 - z) / k**2
    return np.asarray(value, dtype=float)


@lru_cache(maxsize=2)
def draw(count: int = BASINS) -> tuple[Floats, Basins]:
    """(uniform numbers that place each of `count` basins, count × 3; their shapes, at position 0)."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    unit = np.clip(qmc.Sobol(8, scramble=True, seed=0).random(count), 1e-6, 1 - 1e-6)
    normal = ndtri(unit[:, 3:])
    shapes = Basins(
        batch=np.zeros(count),
        rate=np.zeros(count),
        skew=SKEW + 0.3 * normal[:, 0],
        slope=np.clip(SLOPE + 0.2 * normal[:, 1], 0.2, 1.3),
        knee=normal[:, 2],
        over_batch=OVER_BATCH * np.exp2(normal[:, 3]),
        batch_skew=0.4 * normal[:, 4],
    )
    return unit[:, :3], shapes


@dataclass(frozen=True, slots=True)
class Evidence:
    """Runs with a finite loss (log2 batch, log2 rate, percent), and where runs diverged, with which probability."""

    batch: Floats
    rate: Floats
    percent: Floats
    diverged_batch: Floats
    diverged_rate: Floats
    diverged: Floats
    noise: float = SEED_NOISE


class Posterior:
    """Basins weighed by the evidence. `weights` sums to 1 over basins × (steepness, residual)."""

    def __init__(self, basins: Basins, evidence: Evidence) -> None:
        self.evidence = evidence
        self.basins = basins
        self.pairs = tuple(product(STEEPNESS, RESIDUAL))
        log_weight = np.tile([_log_prior(s, residual) for s, residual in self.pairs], (len(basins.batch), 1))
        log_weight += _survival(basins, evidence)[:, None]
        self._solved = []
        if len(evidence.percent):
            shape = basins.excess(evidence.batch, evidence.rate)
            near = evidence.percent - evidence.percent.min()
            variance = np.diag(max(evidence.noise, LEAST_NOISE) ** 2 + (FAR * near) ** 2)
            alike = matern(evidence.batch, evidence.rate, evidence.batch, evidence.rate)
            by_scale: dict[float, _Solved] = {}  # many pairs have the same product, and inverting is the costly part
            for place, (s, residual) in enumerate(self.pairs):
                scale = (s * residual) ** 2
                if scale not in by_scale:
                    by_scale[scale] = _Solved(scale * alike + variance)
                solved = by_scale[scale]
                log_weight[:, place] += solved.log_likelihood(evidence.percent[None, :] - s * shape)
                self._solved.append(solved)
        log_weight -= log_weight.max()
        self.weights = np.exp(log_weight)
        self.weights /= self.weights.sum()
        order = np.argsort(-self.weights, axis=None, kind="stable")[:KEPT]
        self._basin, self._pair = np.unravel_index(order, self.weights.shape)
        kept = self.weights[self._basin, self._pair]
        self._kept = kept / kept.sum()

    def basin_weights(self) -> Floats:
        """Over basins, summing to 1."""
        return np.asarray(self.weights.sum(axis=1))

    def nearness(self, batch: Floats, rate: Floats) -> Floats:
        """Mean of exp(−excess) over the basins: how likely each point is near the lowest, before any loss is known."""
        return np.asarray(self.basin_weights() @ np.exp(-self.basins.excess(batch, rate)))

    def components(self, batch: Floats, rate: Floats) -> tuple[Floats, Floats, Floats]:
        """(weights, means, standard deviations) of the percent at the given points: kept, kept × points twice."""
        evidence = self.evidence
        basins = self.basins.take(self._basin)
        s = np.array([self.pairs[place][0] for place in self._pair])
        here = s[:, None] * basins.excess(batch, rate)
        seen = s[:, None] * basins.excess(evidence.batch, evidence.rate)
        alike = matern(batch, rate, evidence.batch, evidence.rate)
        mean, deviation = np.empty_like(here), np.empty_like(here)
        for place in np.unique(self._pair):
            mine = self._pair == place
            variance = math.prod(self.pairs[place]) ** 2
            left, sd = self._solved[place].predict(evidence.percent[None, :] - seen[mine], variance * alike, variance)
            mean[mine] = here[mine] + left
            deviation[mine] = sd[None, :]
        return self._kept, mean, deviation

    def expected_gain(self, batch: Floats, rate: Floats, best: float) -> Floats:
        """Expected improvement over `best` by a run at each point, in percent."""
        from scipy.special import ndtr

        weights, mean, deviation = self.components(batch, rate)
        z = (best - mean) / deviation
        gain = deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))
        return np.asarray(weights @ gain)

    def predict(self, batch: Floats, rate: Floats) -> tuple[Floats, Floats]:
        """(mean, standard deviation) of the percent at each point."""
        weights, means, deviations = self.components(batch, rate)
        mean = weights @ means
        return np.asarray(mean), np.sqrt(weights @ (deviations**2 + (means - mean) ** 2))


class _Solved:
    """A covariance, its factor, and the level of the losses projected out (a flat prior)."""

    def __init__(self, covariance: Floats) -> None:
        self.inverse = np.linalg.inv(covariance)
        self.log_det = float(np.linalg.slogdet(covariance)[1])
        self.ones = self.inverse.sum(axis=1)
        self.total = float(self.ones.sum())

    def log_likelihood(self, left: Floats) -> Floats:
        level = left @ self.ones / self.total
        left = left - level[:, None]
        square = ((left @ self.inverse) * left).sum(axis=1)
        return np.asarray(-0.5 * (square + self.log_det + math.log(self.total)))

    def predict(self, left: Floats, cross: Floats, variance: float) -> tuple[Floats, Floats]:
        level = left @ self.ones / self.total
        gain = cross @ self.inverse
        mean = level[:, None] + (left - level[:, None]) @ gain.T
        unexplained = variance - np.einsum("ci,ci->c", gain, cross)
        of_level = (1 - gain.sum(axis=1)) ** 2 / self.total
        return mean, np.sqrt(np.maximum(unexplained + of_level, 1e-12))


def _log_prior(s: float, residual: float) -> float:
    of_s = math.log2(s / STEEPNESS_CENTRE) / STEEPNESS_SD
    of_residual = math.log2(residual / RESIDUAL_CENTRE) / RESIDUAL_SD
    return -0.5 * (of_s**2 + of_residual**2)


def matern(batch: Floats, rate: Floats, other_batch: Floats, other_rate: Floats) -> Floats:
    """Matérn-5/2 correlation between points, by their distance in doublings over LENGTHSCALE."""
    square = (batch[:, None] - other_batch[None, :]) ** 2 + (rate[:, None] - other_rate[None, :]) ** 2
    r = np.sqrt(5 * square) / LENGTHSCALE
    return np.asarray((1 + r + r**2 / 3) * np.exp(-r))


def _survival(basins: Basins, evidence: Evidence) -> Floats:
    """Log-likelihood, per basin, of which runs diverged and which did not."""
    of_finite = _diverges(basins, evidence.batch, evidence.rate)
    of_diverged = _diverges(basins, evidence.diverged_batch, evidence.diverged_rate)
    sure = np.minimum(evidence.diverged, 1 - MISJUDGED)
    finite = np.log(1 - (1 - MISJUDGED) * of_finite).sum(axis=1)
    return np.asarray(finite + np.log(1 - sure + sure * of_diverged).sum(axis=1))


def _diverges(basins: Basins, batch: Floats, rate: Floats) -> Floats:
    """Basins × points: probability that a run diverges, x²/(x² + DIVERGES²) of the excess of a too high rate."""
    excess = basins.rate_excess(batch, rate)
    too_high = rate[None, :] > basins.ridge(batch)
    return np.asarray(np.where(too_high, excess**2 / (excess**2 + DIVERGES**2), 0.0))


def percent_of(losses: Sequence[float]) -> Floats:
    """100 · ln(loss): differences are percent of the loss. Where a loss is not positive, percent of the largest."""
    values = np.array(losses, dtype=float)
    if len(values) and values.min() > 0:
        return np.asarray(100 * np.log(values))
    return np.asarray(100 * values / max(float(np.abs(values).max(initial=0.0)), 1e-300))
