"""The noisy quadratic model: a training problem with a closed-form expected loss after any run of plain SGD.

    loss(θ) = L∞ + ½ Σ hᵢ θᵢ²          gradient of sample j = hᵢ θᵢ + εⱼᵢ,  Var εᵢ = c hᵢ

Source: Zhang et al. 2019 (arXiv:1907.04164), where curvature and noise share their eigenvectors. There are three
additions. The noise is a finite table served as data, so that order, pairing and splitting matter. Each update also
adds a rounding error that is independent of the batch size, like that of low-precision weights. Without it the smallest
batch size is always best for a given number of samples, which would hide errors in code that searches for an optimum.

The third addition is `copies`. The loss of a small quadratic differs far more between seeds than that of a large model,
whose loss is a mean over very many directions. With R copies the loss is the mean over R problems with noise of their
own. One of them is trained sample by sample. The others are replaced by the expectation of θ², which has no seed in it:

    E θ² ← (1 − ηh)² E θ² + η² c h Σ wⱼ² + rounding²        wⱼ: weight of sample j in the step, 1/batch

So the expected loss stays exact, and its standard deviation over seeds is 1/R of that of one copy. The recursion holds
for plain SGD without clipping only.
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
    """Parameters of the problem. Curvatures are log-spaced from 1 down to 1/condition, or i^−spectrum.

    SGD diverges at a constant learning rate above 2 (= 2 / the largest curvature). With hᵢ = i^−p and a share ∝ i^−q of
    the initial loss in direction i, the loss without noise falls as steps^−(q−1)/p until the last direction is learned
    (source and capacity conditions; e.g. Bordelon et al. 2024, arXiv:2402.01092): a power law with a floor.
    """

    dimensions: int = 64
    condition: float = 120.0
    spectrum: float = 0.0  # p of hᵢ = i^−p; 0: log-spaced
    source: float = 0.0  # q: direction i has a share ∝ i^−q of the initial loss; 0: equal shares
    gradient_noise: float = 1.0  # c: variance of one sample's gradient, relative to the curvature
    rounding: float = 0.01  # standard deviation of the error that each update adds to each parameter
    start_loss: float = 4.0  # initial loss above `irreducible_loss`
    irreducible_loss: float = 1.0
    copies: int = 1
    samples: int = 16_384
    table_seed: int = 0

    @cached_property
    def curvature(self) -> Vector:
        """The curvatures hᵢ."""
        if self.spectrum:
            return np.asarray(self._directions**-self.spectrum, dtype=np.float64)
        exponents = np.linspace(0.0, 1.0, self.dimensions) if self.dimensions > 1 else np.zeros(1)
        return np.asarray(self.condition**-exponents, dtype=np.float64)

    @cached_property
    def start(self) -> Vector:
        """Initial |θᵢ|; the signs depend on the seed of the run."""
        shares = self._directions**-self.source
        return np.asarray(np.sqrt(2 * self.start_loss * shares / (shares.sum() * self.curvature)))

    @property
    def _directions(self) -> Vector:
        return np.arange(1.0, self.dimensions + 1)

    @property
    def stable_below(self) -> float:
        """Smallest constant learning rate that diverges."""
        return float(2.0 / self.curvature.max())

    def table(self) -> Vector:
        """ε, of shape (samples, dimensions). Each column has mean exactly 0 and variance exactly c·h."""
        return _table(self)

    def losses(self, theta: Vector, noise: Vector, others: Vector | None = None) -> Vector:
        """Loss of each sample with gradient noise ε. Each copy descends its own loss, L∞ + ½ Σ hθ² + ε·θ."""
        return self.loss(theta, others) + noise @ theta / self.copies

    def loss(self, theta: Vector, others: Vector | None = None) -> float:
        """Loss without a sample's noise: the mean over the copy at θ and those with E θ² = `others` (None: as θ)."""
        one = 0.5 * float((self.curvature * theta) @ theta)
        expected = one if others is None else 0.5 * float(self.curvature @ others)
        return self.irreducible_loss + (one + (self.copies - 1) * expected) / self.copies

    def expected_update(self, others: Vector, learning_rate: float, squared_weights: float) -> Vector:
        """E θ² after a step of plain SGD whose samples' weights have this sum of squares."""
        h = self.curvature
        kept = (1.0 - learning_rate * h) ** 2 * others
        noise = learning_rate**2 * self.gradient_noise * squared_weights * h
        return np.asarray(kept + noise + (self.rounding**2 if learning_rate else 0.0))

    def noise_scale(self, theta: Vector) -> float:
        """tr Σ / |G|² at θ (McCandlish et al. 2018, arXiv:1812.06162, eq. 2.9)."""
        return float(self.gradient_noise * self.curvature.sum() / np.sum((self.curvature * theta) ** 2))

    def expected_loss(self, learning_rates: Sequence[float], batch: int) -> float:
        """E[loss] after plain SGD (no momentum, decay or clipping) at one learning rate per step; exact.

        The expectation is over seeds: initial signs, sample order and rounding. Infinity on overflow.
        """
        return float(self.expected_losses(np.array(learning_rates, dtype=np.float64)[:, None], batch)[0])

    def expected_losses(self, learning_rates: Vector, batch: int) -> Vector:
        """`expected_loss` of several runs at once: one column of learning rates per run."""
        return self.mean_loss(self.moments(learning_rates, batch))

    def mean_loss(self, moments: Moments) -> Vector:
        """Expected loss of each run; infinity on overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            one = 0.5 * (moments.bias + moments.variance) @ self.curvature
            others = 0.5 * (moments.bias + moments.fresh_variance) @ self.curvature
            losses = self.irreducible_loss + (one + (self.copies - 1) * others) / self.copies
        return np.where(np.isfinite(losses), losses, np.inf)

    def loss_deviations(self, learning_rates: Vector, batch: int) -> Vector:
        """Standard deviation of the final loss over seeds, one per column, with the noise of θ taken as Gaussian.

        It is Gaussian to the extent that many samples and rounding errors add up; then Var θ² = 4 bias² v + 2 v².
        """
        moments = self.moments(learning_rates, batch)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = 4 * moments.bias * moments.variance + 2 * moments.variance**2
            return np.asarray(0.5 * np.sqrt(squares @ self.curvature**2) / self.copies)

    def moments(self, learning_rates: Vector, batch: int) -> Moments:
        """Of θ after plain SGD; exact. Each column of `learning_rates` is one run.

        θ is linear in start, samples and rounding, so in each direction Var θ = (rounding, propagated by the recursion
        (1−aₜh)²) + the variance of Σⱼ vⱼ εⱼ, where vⱼ is the weight of sample j. Within an epoch samples are drawn
        without replacement, hence Var = σ² N/(N−1) (Σ vⱼ² − (Σ vⱼ)²/N); epochs are independent.
        """
        h, total = self.curvature, self.samples
        fresh = self.gradient_noise * h
        variance = fresh * (total / max(total - 1, 1))
        shape = (learning_rates.shape[1], self.dimensions)
        bias = np.tile(self.start**2, (shape[0], 1))
        rounding, squares, weights = np.zeros(shape), np.zeros(shape), np.zeros(shape)  # Σ vⱼ², Σ vⱼ of this epoch
        drawn, finished = np.zeros(shape), np.zeros(shape)  # Σ vⱼ² and noise of earlier epochs
        curve = np.empty(learning_rates.shape)
        position, epochs = 0, 0
        with np.errstate(over="ignore", invalid="ignore"):
            for step, rates in enumerate(learning_rates):
                curve[step] = (bias + rounding + fresh * (drawn + squares)) @ (0.5 * h)
                rate = rates[:, None]
                keep = 1.0 - rate * h
                kept = keep * keep
                bias *= kept
                rounding *= kept
                rounding += self.rounding**2 * (rate != 0)
                weights *= keep
                squares *= kept
                if epochs:
                    drawn *= kept
                    finished *= kept
                left = batch
                while left:
                    here = min(left, total - position)
                    squares += here * (rate / batch) ** 2
                    weights += here * (rate / batch)
                    position += here
                    left -= here
                    if position == total:
                        finished += variance * (squares - weights**2 / total)
                        drawn += squares
                        squares[:], weights[:] = 0.0, 0.0
                        position, epochs = 0, epochs + 1
            last = variance * (squares - weights**2 / total)
            return Moments(
                bias,
                rounding + finished + last,
                rounding + fresh * (drawn + squares),
                curve + self.irreducible_loss,
            )


@dataclass(frozen=True, slots=True)
class Moments:
    """Of θ after training: squared mean and variance over seeds, of shape (runs, dimensions).

    `fresh_variance`: where no sample is ever drawn twice, as for the copies that are not trained. `curve`: the expected
    loss before each step with such samples, of shape (steps, runs).
    """

    bias: Vector
    variance: Vector
    fresh_variance: Vector
    curve: Vector


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
