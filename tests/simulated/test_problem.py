"""The noisy quadratic: formulas compared with each other and with simulated training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.experiment import OptimizerConfig, ScheduleConfig
from batchlab.core.schedule import Schedule
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.data.stream import SampleStream
from batchlab.recipes import recipe
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoisyQuadratic, held_out_data, training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.testing import check_dataset

SGD = OptimizerSettings(config=OptimizerConfig(name="task", grad_clip=None))
DEVICE = DeviceSettings(name="simulated")


def rates(batch: int, peak: float, samples: int, config: ScheduleConfig | None = None) -> list[float]:
    schedule = Schedule(config or ScheduleConfig(), peak, samples)
    return [schedule.mean(step * batch, (step + 1) * batch) for step in range(samples // batch)]


def final_loss(problem: NoisyQuadratic, learning_rates: list[float], batch: int, seed: int) -> float:
    trainable = SimulatedTrainable(Simulation(problem, Machine()), DEVICE, SGD)
    trainable.init(seed)
    stream = SampleStream(training_data(problem), seed)
    for step, rate in enumerate(learning_rates):
        trainable.accumulate(stream.batch(step * batch, (step + 1) * batch), 1 / batch)
        trainable.apply(rate)
    return trainable.evaluate(held_out_data(problem, 1).gather(np.array([0])))[0]


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(0.01, 1.9), batch=st.integers(1, 64), steps=st.integers(0, 60))
def test_equals_the_published_closed_form(rate: float, batch: int, steps: int) -> None:
    """Zhang et al. 2019, eq. 2–3, at a constant learning rate and a dataset so large that the order does not matter."""
    problem = NoisyQuadratic(rounding=0.0, samples=2**50, irreducible_loss=0.0)
    h, noise = problem.curvature, problem.gradient_noise * problem.curvature
    kept = (1 - rate * h) ** (2 * steps)
    published = np.sum(kept * 0.5 * h * problem.start**2 + (1 - kept) * rate * noise / (2 * batch * (2 - rate * h)))
    assert problem.expected_loss([rate] * steps, batch) == pytest.approx(float(published), rel=1e-9)


@pytest.mark.parametrize(
    ("batch", "peak", "samples", "problem"),
    [
        (8, 0.8, 1024, NoisyQuadratic(samples=4096)),
        (16, 0.5, 2048, NoisyQuadratic(samples=512, gradient_noise=3.0)),  # four epochs
        (24, 0.9, 2400, NoisyQuadratic(samples=100, gradient_noise=9.0, dimensions=8)),  # batches straddle epochs
        (4, 0.05, 600, NoisyQuadratic(rounding=0.2, samples=4096)),
    ],
)
def test_simulated_training_agrees_with_the_formula(
    batch: int, peak: float, samples: int, problem: NoisyQuadratic
) -> None:
    learning_rates = rates(batch, peak, samples)
    losses = [final_loss(problem, learning_rates, batch, seed) for seed in range(40)]
    standard_error = np.std(losses, ddof=1) / np.sqrt(len(losses))
    exact = problem.expected_loss(learning_rates, batch)
    assert abs(np.mean(losses) - exact) < 4 * standard_error
    assert standard_error < 0.1 * (exact - problem.irreducible_loss)


def test_copies_divide_the_spread_and_keep_the_expected_loss() -> None:
    """Losses of 60 seeds of one copy of 5: mean as expected, standard deviation a fifth of that of a single copy."""
    one = NoisyQuadratic(samples=16_384, dimensions=48, spectrum=0.75, source=1.3, irreducible_loss=0.0)
    five = replace(one, copies=5)
    learning_rates = rates(16, 0.6, 1024)
    column = np.array(learning_rates)[:, None]
    assert five.expected_loss(learning_rates, 16) == pytest.approx(one.expected_loss(learning_rates, 16), rel=0.05)
    assert five.loss_deviations(column, 16) == pytest.approx(one.loss_deviations(column, 16) / 5)
    losses = [final_loss(five, learning_rates, 16, seed) for seed in range(60)]
    spread = float(five.loss_deviations(column, 16)[0])
    assert abs(np.mean(losses) - five.expected_loss(learning_rates, 16)) < 4 * spread / np.sqrt(60)
    assert np.std(losses, ddof=1) == pytest.approx(spread, rel=0.35)  # 3.8 of its own standard errors


def test_many_runs_at_once_are_the_runs_one_by_one() -> None:
    problem = NoisyQuadratic(samples=300, dimensions=8, copies=3)
    peaks = (0.1, 0.5, 1.2)
    together = problem.expected_losses(np.array([rates(7, peak, 700) for peak in peaks]).T, 7)
    assert together.tolist() == pytest.approx([problem.expected_loss(rates(7, peak, 700), 7) for peak in peaks])


@pytest.mark.parametrize(("power", "exponent"), [(1.0, 0.5), (1.5, 0.3)])
def test_the_loss_falls_as_a_power_of_the_steps_down_to_the_floor(power: float, exponent: float) -> None:
    problem = NoisyQuadratic(
        dimensions=2**15, spectrum=power, source=1 + power * exponent, gradient_noise=0.0, rounding=0.0, samples=2**50
    )
    early, late = (problem.expected_loss([0.2] * steps, 1) - problem.irreducible_loss for steps in (100, 400))
    assert np.log(early / late) / np.log(4) == pytest.approx(exponent, abs=0.05)
    assert problem.expected_loss([], 1) == pytest.approx(problem.irreducible_loss + problem.start_loss)


def test_drawing_without_replacement_is_accounted_for() -> None:
    """After one full epoch of tiny steps the noise cancels almost completely; with a large dataset it does not."""
    small, large = (NoisyQuadratic(samples=n, rounding=0.0, gradient_noise=50.0) for n in (400, 2**40))
    learning_rates = [1e-3] * 100
    start = small.irreducible_loss
    without = NoisyQuadratic(samples=400, rounding=0.0, gradient_noise=0.0).expected_loss(learning_rates, 4) - start
    small_noise = small.expected_loss(learning_rates, 4) - start - without
    large_noise = large.expected_loss(learning_rates, 4) - start - without
    assert small_noise < 0.01 * large_noise
    losses = [final_loss(small, learning_rates, 4, seed) for seed in range(5)]
    assert np.mean(losses) == pytest.approx(small.expected_loss(learning_rates, 4), rel=1e-3)


def test_training_diverges_beyond_the_stable_learning_rate() -> None:
    problem = NoisyQuadratic()
    assert problem.stable_below == pytest.approx(2.0)
    assert final_loss(problem, [1.8] * 400, 16, 0) < problem.start_loss
    assert final_loss(problem, [2.2] * 400, 16, 0) > 1e9
    assert problem.expected_loss([2.2] * 100_000, 16) == float("inf")


def test_the_best_cell_of_the_recipe_is_inside_the_grid() -> None:
    """The best cell has clearly worse neighbours on each side, in batch size and in learning rate."""
    experiment = recipe("simulated").experiment
    sizes = experiment["batch"]["global_batch_sizes"]
    grid = experiment["sweep"]["learning_rates"]
    budget = experiment["budget"]["token_budget"]
    problem = Simulation().problem
    loss = {
        size: [problem.expected_loss(rates(size, rate, budget), size) - problem.irreducible_loss for rate in grid]
        for size in sizes
    }
    best = min(sizes, key=lambda size: min(loss[size]))
    assert best == 16
    at = loss[best].index(min(loss[best]))
    assert 0 < at < len(grid) - 1
    assert min(loss[best][at - 1], loss[best][at + 1]) > 1.04 * loss[best][at]
    for neighbour in (8, 32):
        assert min(loss[neighbour]) > 1.1 * min(loss[best])
    assert budget // sizes[-1] >= 50


def test_without_rounding_small_batches_are_never_worse() -> None:
    """Without rounding, plain SGD at equal samples is best at the smallest batch size."""
    problem = NoisyQuadratic(rounding=0.0)
    grid = [2.0 ** (power / 2) for power in range(-10, 2)]
    best = [min(problem.expected_loss(rates(size, rate, 4096), size) for rate in grid) for size in (1, 4, 16, 64)]
    assert best == sorted(best)


def test_noise_scale_equals_that_of_the_table() -> None:
    problem = NoisyQuadratic(samples=500, dimensions=6)
    theta = problem.start
    table = problem.table()
    gradients = problem.curvature * theta + table
    mean = gradients.mean(axis=0)
    measured = np.sum(gradients.var(axis=0)) / np.sum(mean**2)
    assert problem.noise_scale(theta) == pytest.approx(float(measured), rel=1e-9)


def test_losses_match_their_gradients() -> None:
    problem = NoisyQuadratic(samples=10, dimensions=5)
    theta, noise = problem.start.copy(), problem.table()[:3]
    for i in range(5):
        step = np.zeros(5)
        step[i] = 1e-6
        slope = (problem.losses(theta + step, noise) - problem.losses(theta - step, noise)) / 2e-6
        assert np.allclose(slope, problem.curvature[i] * theta[i] + noise[:, i], atol=1e-6)


def test_datasets_satisfy_the_contract_and_keep_their_digest() -> None:
    problem = NoisyQuadratic(samples=50, dimensions=4)
    data = training_data(problem)
    check_dataset(data)
    check_dataset(held_out_data(problem))
    assert data.gather(np.array([7, 3]))[1].tolist() == [7, 3]
    digests = {training_data(NoisyQuadratic(samples=50, dimensions=4, table_seed=seed)).digest for seed in (0, 1)} | {
        training_data(NoisyQuadratic(samples=51, dimensions=4)).digest
    }
    assert len(digests) == 3
    assert data.digest in digests


def test_held_out_loss_is_the_loss_of_the_parameters() -> None:
    problem = NoisyQuadratic()
    batch = held_out_data(problem).gather(np.arange(5))
    expected = problem.irreducible_loss + problem.start_loss
    assert problem.losses(problem.start, batch[0]).tolist() == pytest.approx([expected] * 5)
    assert problem.expected_loss([], 4) == pytest.approx(expected)
