"""The ratio of two means with its 95 % interval, from pairs measured along one run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchlab.analysis.sweep.noise import CONFIDENCE, t_quantile

Vector = npt.NDArray[np.float64]

MIN_BLOCKS = 4
"""With fewer independent blocks the interval is that of Student's t with 1 or 2 degrees of freedom: tens of times too
wide to be useful."""
BOOTSTRAPS = 2000
LEAST_TAIL = 4
"""The tail is told from no fewer values."""
THIN_TAIL = 3.0
HEAVIEST_TAIL = 1.15
"""Of the exponents α of a tail. At 1 the mean would be infinite; features from Student's t with 5 degrees of freedom
give squared gradients 1.25."""


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """The values of θ that are compatible with E y = θ E x.

    `high` None: the mean of x is not distinguishable from 0, so every θ from `low` up is possible; `low` None as well:
    every θ is.
    """

    value: float
    low: float | None
    high: float | None


def block_means(rows: Vector, block_length: int | None) -> Vector:
    """Means over blocks of consecutive rows; rows left over at the start, fewer than a block, join the first block."""
    n = len(rows)
    if n == 0:
        return rows
    length = max(1, round(n ** (1 / 3))) if block_length is None else block_length
    length = min(length, n)
    count = n // length
    first = n - (count - 1) * length
    return np.vstack([rows[:first].mean(axis=0), rows[first:].reshape(count - 1, length, *rows.shape[1:]).mean(axis=1)])


def fieller(y: Vector, x: Vector) -> RatioInterval:
    """95 % limits of E y / E x from pairs: each θ for which the mean of y − θx is within t standard errors of 0.

    Source: Fieller 1954. Exact for Gaussian pairs, however uncertain x is. The set is unbounded, as it must be, where
    the mean of x is not distinguishable from 0. Meant for y ≥ 0: of an unbounded set only the part above 0 is returned.
    """
    n = len(x)
    t2 = t_quantile(0.5 + CONFIDENCE / 2, n - 1) ** 2
    mean_y, mean_x = float(y.mean()), float(x.mean())
    covariance = np.cov(np.vstack([y, x]), ddof=1) / n
    # (ȳ − θx̄)² ≤ t² Var(ȳ − θx̄) is aθ² − 2bθ + c ≤ 0.
    a = mean_x**2 - t2 * float(covariance[1, 1])
    b = mean_x * mean_y - t2 * float(covariance[0, 1])
    c = mean_y**2 - t2 * float(covariance[0, 0])
    value = mean_y / mean_x if mean_x else math.inf
    root = b * b - a * c
    if a > 0 and mean_x > 0:
        half = math.sqrt(max(root, 0.0))
        return RatioInterval(value, (b - half) / a, (b + half) / a)
    if a >= 0 or root <= 0 or c <= 0:  # x below 0, or no θ is excluded, or 0 itself is possible
        return RatioInterval(value, None, None)
    larger = max((b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a)
    return RatioInterval(value, larger if larger > 0 else None, None)


def tail_allowance(values: Vector) -> float:
    """How much larger the mean may be than that of these values, because the largest ones have yet to be drawn: ≥ 1.

    Student's t assumes that a mean has nearly Gaussian errors. Where the tail falls like x^-α with α near 1, most
    samples lack its largest values, and their mean and its standard error are both too small. The largest k = 2 √n
    values give α (Hill 1975); with α one standard error lower, α/√k, the mean of the tail beyond them is that of a
    Pareto distribution (Peng 2001). The factor is that mean of the whole to the plain one. 1 for α of 3 or more.
    """
    n = len(values)
    ordered = np.sort(values)[::-1]
    k = min(max(LEAST_TAIL, round(2 * math.sqrt(n))), n // 2)
    if k < LEAST_TAIL or ordered[k] <= 0:
        return 1.0
    threshold = float(ordered[k])
    index = 1 / max(float(np.mean(np.log(ordered[:k] / threshold))), 1e-12)
    if index >= THIN_TAIL:
        return 1.0
    index = max(index * (1 - 1 / math.sqrt(k)), HEAVIEST_TAIL)
    extrapolated = (float(ordered[k:].sum()) + k * threshold * index / (index - 1)) / n
    return max(1.0, extrapolated / float(values.mean()))


def bootstrap_ratio(blocks: Vector, seed: int = 0) -> tuple[float, float]:
    """95 % percentile limits of Σ y / Σ x over blocks drawn with replacement; a draw with Σ x ≤ 0 is infinite."""
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = blocks[generator.integers(0, len(blocks), (BOOTSTRAPS, len(blocks)))].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.sort(np.where(drawn[:, 1] > 0, drawn[:, 0] / drawn[:, 1], np.inf))
    tail = (1 - CONFIDENCE) / 2
    return float(ratios[int(tail * BOOTSTRAPS)]), float(ratios[math.ceil((1 - tail) * BOOTSTRAPS) - 1])
