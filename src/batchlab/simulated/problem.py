"""The noisy quadratic model: a training problem with a closed-form expected loss after any run of plain SGD.

    loss(θ) = L∞ + ½ Σ hᵢ θᵢ²          gradient of sample j = hᵢ θᵢ + εⱼᵢ,  Var εᵢ = c hᵢ

Source: Zhang et al. 2019 (arXiv:1907.04164), where curvature and noise share their eigenvectors. There are two
additions. The noise is a finite table served as data, so that order, pairing and splitting matter. Each update also
adds a rounding error that is independent of the batch size, like that of low-precision weights. Without it the smallest
batch size is always best for a given number of samples, which would hide errors in code that searches for an optimum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from batchlab.core.protocols import Batch

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NoisyQuadratic:
    """Parameters of the problem. Curvatures are log-spaced from 1 down to 1/condition.

    SGD diverges at a constant learning rate above 2 (= 2 / the largest curvature).
    """

    dimensions: int = 64
    condition: float = 120.0
    gradient_noise: float = 1.0  # c: variance of one sample's gradient, relative to the curvature
    rounding: float = 0.01  # standard deviation of the error that each update adds to each parameter
    start_loss: float = 4.0  # initial loss above `irreducible_loss`, equal in all directions
    irreducible_loss: float = 1.0
    samples: int = 16_384
    table_seed: int = 0

    @cached_property
    def curvature(self) -> Vector:
        """The curvatures hᵢ."""
        exponents = np.linspace(0.0, 1.0, self.dimensions) if self.dimensions > 1 else np.zeros(1)
        return np.asarray(self.condition**-exponents, dtype=np.float64)

    @cached_property
    def start(self) -> Vector:
        """Initial |θᵢ|; the signs depend on the seed of the run."""
        return np.sqrt(2 * self.start_loss / (self.dimensions * self.curvature))

    @property
    def stable_below(self) -> float:
        """Smallest constant learning rate that diverges."""
        return float(2.0 / self.curvature.max())

    def table(self) -> Vector:
        """ε, of shape (samples, dimensions). Each column has mean exactly 0 and variance exactly c·h."""
        return _table(self)

    def losses(self, theta: Vector, noise: Vector) -> Vector:
        """Loss of each sample with gradient noise ε: L∞ + ½ Σ hθ² + ε·θ."""
        quadratic = 0.5 * float(np.sum(self.curvature * theta * theta))
        return self.irreducible_loss + quadratic + noise @ theta

    def noise_scale(self, theta: Vector) -> float:
        """tr Σ / |G|² at θ (McCandlish et al. 2018, arXiv:1812.06162, eq. 2.9)."""
        return float(self.gradient_noise * self.curvature.sum() / np.sum((self.curvature * theta) ** 2))

    def expected_loss(self, learning_rates: Sequence[float], batch: int) -> float:
        """E[loss] after plain SGD (no momentum, decay or clipping) at one learning rate per step; exact.

        The expectation is over seeds: initial signs, sample order and rounding. θ is linear in all three, so in each
        direction E θ² = (start and rounding, propagated by the recursion (1−aₜh)²) + the variance of Σⱼ vⱼ εⱼ, where vⱼ
        is the weight of sample j. Within an epoch samples are drawn without replacement, hence
        Var = σ² N/(N−1) (Σ vⱼ² − (Σ vⱼ)²/N); epochs are independent. Returns infinity on overflow.
        """
        h, total = self.curvature, self.samples
        variance = self.gradient_noise * h * (total / max(total - 1, 1))
        mean_square = self.start**2
        squares = np.zeros_like(h)  # Σ vⱼ² of this epoch
        weights = np.zeros_like(h)  # Σ vⱼ of this epoch
        finished = np.zeros_like(h)  # noise of earlier epochs
        position = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for rate in learning_rates:
                keep = 1.0 - rate * h
                mean_square = keep**2 * mean_square + (self.rounding**2 if rate else 0.0)
                squares, weights, finished = keep**2 * squares, keep * weights, keep**2 * finished
                left = batch
                while left:
                    here = min(left, total - position)
                    squares = squares + here * (rate / batch) ** 2
                    weights = weights + here * (rate / batch)
                    position += here
                    left -= here
                    if position == total:
                        finished = finished + variance * (squares - weights**2 / total)
                        squares, weights, position = np.zeros_like(h), np.zeros_like(h), 0
            second_moment = mean_square + finished + variance * (squares - weights**2 / total)
            loss = self.irreducible_loss + 0.5 * float(np.sum(h * second_moment))
        return loss if np.isfinite(loss) else float("inf")


class NoiseDataset:
    """A Dataset whose sample j is (row j of a noise table, j)."""

    def __init__(self, table: Vector) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """(ε of shape (len(indices), dimensions), the indices themselves)."""
        return self.table[indices], np.array(indices, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """sha256 over shape and content."""
        header = f"noise {self.table.shape}\n".encode()
        return hashlib.sha256(header + np.ascontiguousarray(self.table).tobytes()).hexdigest()


def training_data(problem: NoisyQuadratic) -> NoiseDataset:
    """The problem's noise table as samples."""
    return NoiseDataset(problem.table())


def held_out_data(problem: NoisyQuadratic, samples: int = 1024) -> NoiseDataset:
    """Samples without noise, so that the loss of each sample is exactly that of the parameters."""
    return NoiseDataset(np.zeros((samples, problem.dimensions)))


@lru_cache(maxsize=4)
def _table(problem: NoisyQuadratic) -> Vector:
    drawn = np.random.Generator(np.random.PCG64(problem.table_seed)).standard_normal(
        (problem.samples, problem.dimensions)
    )
    drawn -= drawn.mean(axis=0)
    spread = drawn.std(axis=0)
    drawn *= np.sqrt(problem.gradient_noise * problem.curvature) / np.where(spread > 0, spread, 1.0)
    drawn.flags.writeable = False
    return drawn
