"""The computed problems of benchmarks/critical_batch, and what the estimator makes of two new ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from batchlab.analysis.critical.steps_to_target import StepsPoint, critical_batch

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def problems(module_of: Load) -> ModuleType:
    return module_of("critical_batch", "problems")


def test_steps_of_the_spectrum_1_over_i(problems: ModuleType) -> None:
    """Whole steps from an independent computation, which the real-valued ones round up to, but for its rate grid."""
    quadratic = problems.Quadratic(1.0)
    known = {1: 10064, 16: 723, 64: 309, 256: 220, 1024: 197}
    for batch, steps in known.items():
        assert problems.fewest_steps(quadratic, float(batch), 0.05) == pytest.approx(steps, rel=0.025)
    truth = problems.Truth.of(quadratic, 0.05)
    assert (truth.twice_steps, truth.twice_samples) == pytest.approx((46.6, 65.6), abs=0.1)
    assert problems.overhead(quadratic, 0.05, 1.0) == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize("freedom", [math.inf, 6.0])
def test_the_loss_of_regression_is_that_of_sgd(problems: ModuleType, freedom: float) -> None:
    """5 steps of 20,000 simulated runs, at a batch of 2."""
    regression = problems.Regression(1.0, freedom, 3, 0.5)
    rng, batch, rate, runs = np.random.default_rng(0), 2, 0.15, 20_000
    h = regression.curvature
    error = np.ones((runs, 3))
    for _ in range(5):
        x = rng.standard_normal((runs, batch, 3)) * np.sqrt(h)
        if math.isfinite(freedom):
            x *= np.sqrt((freedom - 2) / rng.chisquare(freedom, (runs, batch, 1)))
        residual = np.einsum("rbi,ri->rb", x, error) - 0.5 * rng.standard_normal((runs, batch))
        error = error - rate * np.einsum("rb,rbi->ri", residual, x) / batch
    simulated = float((error**2 @ h).mean() / 2)
    assert problems.loss_after(regression, batch, rate, [5.0])[0] == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize(("kind", "exponent"), [("Quadratic", 0.7), ("Regression", 0.8)])
def test_intervals_hold_the_computed_batch_sizes(problems: ModuleType, kind: str, exponent: float) -> None:
    """20 draws of 2 % noise; each definition misses at most 3, where 1 is nominal."""
    problem, share, sizes = getattr(problems, kind)(exponent, dimensions=20), 0.07, 2.0 ** np.arange(9)
    truth = problems.Truth.of(problem, share)
    wanted = (truth.twice_steps, truth.twice_samples, problems.overhead(problem, share, 1.0))
    steps = np.array([problems.fewest_steps(problem, float(b), share) for b in sizes])
    rng, held, given = np.random.default_rng(1), np.zeros(3), np.zeros(3)
    for _ in range(20):
        noisy = steps * np.exp(0.02 * rng.standard_normal(len(sizes)))
        points = [StepsPoint(float(b), float(s)) for b, s in zip(sizes, noisy, strict=True)]
        found = critical_batch(points, origin="constant_lr", noise_sd=0.02, base_batch=1.0)
        for i, (estimate, true) in enumerate(
            zip((found.twice_steps, found.twice_samples, found.overhead), wanted, strict=True)
        ):
            assert estimate is not None
            one = estimate.value
            low, high = (estimate.at_least, estimate.at_most) if one is None else (one.low, one.high)
            held[i] += (low or 0) <= true <= (high or math.inf)
            given[i] += one is not None
    assert np.all(held >= 17)
    assert given[2] == 20
    assert given[1] >= 15
