from __future__ import annotations

import math

import numpy as np
import pytest

from batchlab.analysis.critical.noise_scale import (
    GradientNorms,
    NoiseReason,
    NoiseScale,
    noise_scale,
    noise_scale_series,
    unbiased_parts,
)
from batchlab.core.errors import InputError
from batchlab.simulated.problem import NoisyQuadratic


def logged(gradients: np.ndarray, sizes: np.ndarray, tokens: float = 0.0) -> GradientNorms:
    """What a step logs; gradients: micro-batch × parameter."""
    mean = sizes @ gradients / sizes.sum()
    squares = tuple((gradients**2).sum(axis=1).tolist())
    return GradientNorms(tuple(sizes.tolist()), squares, float(mean @ mean), tokens)


def gaussian_steps(
    rng: np.random.Generator, gradient: np.ndarray, sd: np.ndarray, sizes: np.ndarray, steps: int
) -> list[GradientNorms]:
    noise = rng.standard_normal((steps, len(sizes), len(gradient))) * sd / np.sqrt(sizes)[None, :, None]
    return [logged(gradient + noise[i], sizes) for i in range(steps)]


def covers(found: NoiseScale, truth: float) -> bool:
    if found.value is not None:
        assert found.value.low is not None
        assert found.value.high is not None
        return found.value.low <= truth <= found.value.high
    return found.at_least is None or found.at_least <= truth


@pytest.mark.parametrize("sizes", [[4.0] * 8, [1.0, 2.0, 5.0, 8.0]])
def test_parts_are_unbiased_with_the_textbook_variance(sizes: list[float]) -> None:
    rng, b = np.random.default_rng(1), np.array(sizes)
    gradient, sd = np.full(6, 0.7), np.linspace(0.5, 2.0, 6)
    parts = np.array([unbiased_parts(step) for step in gaussian_steps(rng, gradient, sd, b, 20_000)])
    k, batch, trace, trace2 = len(b), b.sum(), float(np.sum(sd**2)), float(np.sum(sd**4))
    var_trace = 2 * trace2 / (k - 1)
    var_square = 4 * float(np.sum(gradient**2 * sd**2)) / batch + 2 * trace2 * k / ((k - 1) * batch**2)
    errors = np.sqrt(np.array([var_trace, var_square]) / len(parts))
    assert np.all(np.abs(parts.mean(axis=0) - [trace, float(gradient @ gradient)]) < 4 * errors)
    assert parts.var(axis=0) == pytest.approx([var_trace, var_square], rel=0.08)


@pytest.mark.parametrize(
    ("sizes", "steps", "block_length", "seed"),
    [([4.0] * 8, 32, 1, 0), ([4.0] * 8, 64, None, 1), ([2.0, 6.0, 4.0, 8.0], 40, 1, 2), ([1.0] * 16, 32, None, 3)],
)
def test_nominal_95_percent_cover_gaussian_gradients(
    sizes: list[float], steps: int, block_length: int | None, seed: int
) -> None:
    rng, gradient, sd = np.random.default_rng(seed), np.full(12, 0.5), np.linspace(0.5, 2.5, 12)
    truth = float(np.sum(sd**2) / (gradient @ gradient))
    found = [
        noise_scale(gaussian_steps(rng, gradient, sd, np.array(sizes), steps), block_length=block_length)
        for _ in range(600)
    ]
    assert 0.93 <= np.mean([covers(f, truth) for f in found]) <= 0.97
    assert np.mean([f.status == "measured" for f in found]) > 0.9


def test_nominal_95_percent_cover_linear_regression() -> None:
    """x ~ N(0, H), y = x·w + s·z, error e: G = H e, tr Σ = s² tr H + (eᵀHe) tr H + |He|²."""
    rng, curvature, error, s = np.random.default_rng(5), np.array([2.0, 1.0, 0.5, 0.25, 0.1]), np.ones(5), 0.5
    gradient, quadratic = curvature * error, float(error @ (curvature * error))
    trace = (s**2 + quadratic) * curvature.sum() + float(gradient @ gradient)
    truth = trace / float(gradient @ gradient)
    micro, b, steps, repetitions = 8, 4, 40, 500
    x = rng.standard_normal((repetitions, steps, micro, b, 5)) * np.sqrt(curvature)
    residual = x @ error - s * rng.standard_normal((repetitions, steps, micro, b))
    gradients = (x * residual[..., None]).mean(axis=3)
    sizes = np.full(micro, float(b))
    found = [noise_scale([logged(g, sizes) for g in run]) for run in gradients]
    assert 0.90 <= np.mean([covers(f, truth) for f in found]) <= 0.97
    assert all(f.status == "measured" for f in found)


def test_block_bootstrap_covers_too() -> None:
    rng, gradient, sd = np.random.default_rng(8), np.full(8, 0.5), np.linspace(0.5, 1.5, 8)
    truth = float(np.sum(sd**2) / (gradient @ gradient))
    sizes = np.full(4, 4.0)
    found = [noise_scale(gaussian_steps(rng, gradient, sd, sizes, 120), method="bootstrap") for _ in range(500)]
    assert 0.90 <= np.mean([covers(f, truth) for f in found]) <= 0.97


def test_ratio_of_averages_where_the_average_of_ratios_is_biased() -> None:
    rng, gradient, sd = np.random.default_rng(3), np.full(20, 0.5), np.ones(20)
    steps = gaussian_steps(rng, gradient, sd, np.full(8, 2.0), 8000)
    truth = 20 / float(gradient @ gradient)
    parts = np.array([unbiased_parts(step) for step in steps])
    found = noise_scale(steps)
    assert found.value is not None
    assert found.value.value == pytest.approx(truth, rel=0.02)
    assert abs(float(np.mean(parts[:, 0] / parts[:, 1])) / truth - 1) > 0.05


def test_undetermined_where_there_is_no_gradient() -> None:
    """At the optimum of the regression G = 0 and the noise scale is infinite: never a two-sided interval but in 5 %."""
    rng = np.random.default_rng(4)
    found = [noise_scale(gaussian_steps(rng, np.zeros(10), np.ones(10), np.full(4, 4.0), 32)) for _ in range(300)]
    assert np.mean([f.status == "measured" for f in found]) < 0.05
    one = next(f for f in found if f.status == "at_least")
    assert one.value is None
    assert one.at_least is not None
    assert one.reason is NoiseReason.GRADIENT_WITHIN_NOISE


def test_no_noise_is_a_noise_scale_of_zero() -> None:
    found = noise_scale([GradientNorms((4.0, 4.0), (2.0, 2.0), 2.0)] * 8)
    assert found.value is not None
    assert (found.value.value, found.value.low, found.value.high) == pytest.approx((0, 0, 0))


@pytest.mark.parametrize(("size", "advice"), [(1.0, "cannot be split"), (8.0, "Split it in two")])
def test_a_lone_micro_batch_is_refused(size: float, advice: str) -> None:
    with pytest.raises(InputError, match=advice):
        noise_scale([GradientNorms((size,), (1.0,), 1.0)])


def test_bad_micro_batches_are_refused() -> None:
    with pytest.raises(InputError, match="2 micro-batch sizes came with 1"):
        unbiased_parts(GradientNorms((4.0, 4.0), (1.0,), 1.0))
    with pytest.raises(InputError, match="no samples"):
        unbiased_parts(GradientNorms((4.0, 0.0), (1.0, 1.0), 1.0))


def test_overflowed_steps_are_left_out_and_counted() -> None:
    steps = gaussian_steps(np.random.default_rng(2), np.ones(8), np.ones(8), np.full(4, 4.0), 30)
    overflowed = [GradientNorms((4.0,) * 4, (math.inf, 1.0, 1.0, 1.0), math.nan)] * 3
    found, clean = noise_scale([*steps[:10], *overflowed, *steps[10:]]), noise_scale(steps)
    assert (found.value, found.overflowed, found.steps) == (clean.value, 3, 30)
    none = noise_scale(overflowed)
    assert (none.status, none.overflowed, none.reason) == ("undetermined", 3, NoiseReason.TOO_FEW_STEPS)


def test_too_few_steps_have_no_interval() -> None:
    steps = gaussian_steps(np.random.default_rng(2), np.ones(8), np.ones(8), np.full(4, 4.0), 3)
    assert noise_scale(steps).status == "undetermined"
    assert noise_scale([]).status == "undetermined"
    assert noise_scale([]).trace is None


def test_series_follows_a_noise_scale_that_grows_along_training() -> None:
    problem, rng = NoisyQuadratic(dimensions=16, condition=10.0), np.random.default_rng(0)
    sizes, steps, truths = np.full(8, 8.0), [], []
    for step in range(120):
        theta = problem.start * np.exp(-0.01 * step)
        sd = np.sqrt(problem.gradient_noise * problem.curvature)
        noise = rng.standard_normal((8, 16)) * sd / np.sqrt(8.0)
        steps.append(logged(problem.curvature * theta + noise, sizes, tokens=64.0 * (step + 1)))
        truths.append((float(np.sum(sd**2)), float(np.sum((problem.curvature * theta) ** 2))))
    assert truths[0][0] / truths[0][1] == pytest.approx(problem.noise_scale(problem.start))
    series = noise_scale_series(steps, 30)
    assert [point.steps for point in series] == [30] * 4
    assert (series[1].tokens_from, series[1].tokens_to) == (64.0 * 31, 64.0 * 60)
    values = [point.value.value for point in series if point.value is not None]
    assert len(values) == 4
    assert values == sorted(values)
    for i, point in enumerate(series):
        window = np.array(truths[30 * i : 30 * (i + 1)])
        assert covers(point, float(window[:, 0].sum() / window[:, 1].sum()))


def test_series_lets_a_short_rest_join_and_refuses_short_windows() -> None:
    steps = gaussian_steps(np.random.default_rng(2), np.ones(8), np.ones(8), np.full(4, 4.0), 34)
    assert [point.steps for point in noise_scale_series(steps, 10)] == [10, 10, 14]
    assert [point.steps for point in noise_scale_series(steps[:26], 10)] == [10, 10, 6]
    with pytest.raises(InputError, match="too short"):
        noise_scale_series(steps, 3)
