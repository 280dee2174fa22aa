"""Training problems whose steps to a loss are computed, not measured: noisy quadratics and linear regression by SGD.

Both have curvatures h_i = i^-p and start one unit from the optimum in every direction. The loss after T steps at batch
size B and constant learning rate η is a sum over eigenvectors, so T is a real number and S(B), the fewest steps to a
loss over learning rates, has no noise.

- `Quadratic`: gradient noise of covariance diag(h)/B. Zhang, G. et al. 2019 (arXiv:1907.04164), eq. 3.
- `Regression`: one pass over Gaussian features with covariance diag(h), or features with heavy tails (multivariate
  Student t), and label noise. The second moments m of the error obey m ← A m + η²s²h/B with the symmetric matrix
  A = diag((1 − ηh)² + η²(2κ − 1)h²/B) + η²κ hhᵀ/B. κ = (ν − 2)/(ν − 4) for t with ν degrees of freedom, 1 for Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Loss = tuple[Vector, Vector, float]
"""(weights w, ln rates r, constant): the loss after T steps is Σ w e^(rT) + constant."""

SMALLEST = 2.0**-10
"""The limit of small batches: S·B changes by under 0.1 % below."""
LARGEST = 2.0**30
"""The limit of large batches."""


class Problem(Protocol):
    """A problem whose loss is known at every step."""

    @property
    def start(self) -> float:
        """The loss before the first step."""

    @property
    def largest_rate(self) -> float:
        """Above this learning rate SGD diverges at any batch size."""

    def modes(self, batch: float, rate: float) -> Loss | None:
        """The loss as a sum of powers; None where SGD diverges."""


@dataclass(frozen=True)
class Quadratic:
    """½ Σ h_i θ_i², h_i = i^-p, with gradient noise of covariance diag(h)/B."""

    exponent: float
    dimensions: int = 1000

    @property
    def curvature(self) -> Vector:
        return np.asarray(np.arange(1.0, self.dimensions + 1) ** -self.exponent)

    @property
    def start(self) -> float:
        return float(self.curvature.sum()) / 2

    @property
    def largest_rate(self) -> float:
        return 2.0

    def modes(self, batch: float, rate: float) -> Loss | None:
        h = self.curvature
        if rate * h[0] >= 2:
            return None
        steady = rate * h / (2 * batch * (2 - rate * h))
        with np.errstate(divide="ignore"):
            decay = 2 * np.log(np.abs(1 - rate * h))
        return h / 2 - steady, decay, float(steady.sum())


@dataclass(frozen=True)
class Regression:
    """Excess loss of y = xᵀw + label noise, where x has covariance diag(i^-p)."""

    exponent: float
    freedom: float = math.inf  # of Student's t; inf: Gaussian features
    dimensions: int = 60
    label_sd: float = 0.5

    @property
    def curvature(self) -> Vector:
        return np.asarray(np.arange(1.0, self.dimensions + 1) ** -self.exponent)

    @property
    def kurtosis(self) -> float:
        return 1.0 if math.isinf(self.freedom) else (self.freedom - 2) / (self.freedom - 4)

    @property
    def start(self) -> float:
        return float(self.curvature.sum()) / 2

    @property
    def largest_rate(self) -> float:
        return 2.0

    def modes(self, batch: float, rate: float) -> Loss | None:
        h, share = self.curvature, rate**2 / batch
        matrix = np.diag((1 - rate * h) ** 2 + share * (2 * self.kurtosis - 1) * h**2)
        matrix += share * self.kurtosis * np.outer(h, h)
        values, vectors = np.linalg.eigh(matrix)
        if values[-1] >= 1:
            return None
        loss, first = vectors.T @ h / 2, vectors.T @ np.ones_like(h)
        steady = vectors.T @ (share * self.label_sd**2 * h) / (1 - values)
        return loss * (first - steady), np.log(np.maximum(values, 1e-300)), float(loss @ steady)


def loss_after(problem: Problem, batch: float, rate: float, steps: Sequence[float]) -> Vector | None:
    """The loss after each number of steps; None where SGD diverges."""
    modes = problem.modes(batch, rate)
    if modes is None:
        return None
    weights, decay, constant = modes
    with np.errstate(invalid="ignore"):
        powers = np.exp(np.asarray(steps)[:, None] * np.maximum(decay, -1e6)[None, :])
    return np.asarray(powers @ weights + constant)


def steps_at(problem: Problem, batch: float, rate: float, target: float) -> float:
    """Steps to the target at one learning rate, a real number; inf where it is never reached."""
    modes = problem.modes(batch, rate)
    if modes is None or modes[2] >= target:
        return math.inf
    weights, decay, constant = modes
    decay = np.maximum(decay, -1e6)
    low, high = 0.0, 1.0
    while weights @ np.exp(high * decay) + constant > target:
        low, high = high, 2 * high
        if high > 1e13:
            return math.inf
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if weights @ np.exp(middle * decay) + constant > target else (low, middle)
    return (low + high) / 2


@cache
def tuned(problem: Problem, batch: float, share: float) -> tuple[float, float]:
    """(fewest steps to `share` of the first loss, learning rate that takes them)."""
    target = share * problem.start

    def steps(rate: float) -> float:
        return steps_at(problem, batch, rate, target)

    # The best learning rate is proportional to B until SGD's stability limits it.
    rates = problem.largest_rate * min(1.0, 4 * batch) * 2.0 ** (-np.arange(0, 14) - 1e-4)
    found = [steps(float(rate)) for rate in rates]
    best = int(np.argmin(found))
    low, high = math.log(rates[min(best + 1, len(rates) - 1)]), math.log(rates[max(best - 1, 0)])
    golden = (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = steps(math.exp(a)), steps(math.exp(b))
    for _ in range(18):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = steps(math.exp(a))
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = steps(math.exp(b))
    return min((at_a, math.exp(a)), (at_b, math.exp(b)))


def fewest_steps(problem: Problem, batch: float, share: float) -> float:
    """S(B): the fewest steps over learning rates."""
    return tuned(problem, batch, share)[0]


@dataclass(frozen=True)
class Truth:
    """Batch sizes by each definition, from the computed S(B) and its limits."""

    s_min: float
    e_min: float
    twice_steps: float  # S = 2 S_min
    twice_samples: float  # E = 2 E_min

    @staticmethod
    def of(problem: Problem, share: float) -> Truth:
        """Bisection in ln B, to 1 part in 10,000."""
        s_min = fewest_steps(problem, LARGEST, share)
        e_min = SMALLEST * fewest_steps(problem, SMALLEST, share)
        steps = _crossing(lambda b: fewest_steps(problem, b, share) < 2 * s_min)
        samples = _crossing(lambda b: b * fewest_steps(problem, b, share) > 2 * e_min)
        return Truth(s_min, e_min, steps, samples)


def overhead(problem: Problem, share: float, base: float) -> float:
    """The batch size that needs 20 % more samples than `base`."""
    limit = 1.2 * base * fewest_steps(problem, base, share)
    return _crossing(lambda b: b * fewest_steps(problem, b, share) > limit)


def _crossing(beyond) -> float:  # type: ignore[no-untyped-def]
    low, high = -7.0, 25.0  # powers of two
    for _ in range(17):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(2.0**middle) else (middle, high)
    return 2.0 ** ((low + high) / 2)
