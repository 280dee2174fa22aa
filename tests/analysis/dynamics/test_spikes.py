"""Known spikes are found where they are; smooth curves and plain noise have none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.dynamics.spikes import HALF_WINDOW, find_spikes, running_median


def loss_curve(points=200, noise=0.02, seed=0):
    share = np.linspace(0, 1, points)
    return 2 + 4 * np.exp(-8 * share) + noise * np.random.default_rng(seed).standard_normal(points)


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_known_spikes_are_found_located_and_measured(noise):
    curve = loss_curve(noise=noise)
    curve[60] += 1.0
    curve[120:124] += (0.6, 1.5, 1.1, 0.5)
    found = find_spikes(curve)
    assert [(spike.index, spike.length) for spike in found] == [(60, 1), (121, 4)]
    assert [spike.height for spike in found] == pytest.approx([1.0, 1.5], abs=0.15)


def test_plain_noise_has_none():
    assert not any(find_spikes(loss_curve(noise=0.1, seed=seed)) for seed in range(50))


def test_the_highest_of_several_noisy_steps_has_none_either():
    """What metrics keep of a row is the highest of its steps; such maxima skew upwards."""
    random = np.random.default_rng(1)
    highest = [loss_curve(noise=0) + 0.05 * random.standard_normal((200, 8)).max(axis=1) for _ in range(50)]
    assert sum(bool(find_spikes(curve)) for curve in highest) <= 1


@given(
    start=st.floats(0.1, 100),
    rate=st.floats(0.0, 50),
    waves=st.floats(0.0, 0.5),
    points=st.integers(5, 300),
    sign=st.sampled_from((1.0, -1.0)),
)
def test_smooth_curves_have_none(start, rate, waves, points, sign):
    """Falls and rises of any steepness, with waves at least eight windows long."""
    place = np.arange(points)
    period = 8 * (2 * HALF_WINDOW + 1)
    curve = sign * start * (np.exp(-rate * place / points) + waves * np.sin(2 * np.pi * place / period))
    assert find_spikes(curve) == ()


def test_a_rise_that_stays_is_no_spike():
    assert not [s for s in find_spikes(np.repeat([1.0, 3.0], 50) + loss_curve(100, 0.01)) if s.length > 2]


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 9.0, 1.0, 1.0]])
def test_too_few_points_have_none(values):
    assert find_spikes(values) == ()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_running_median_of_a_sorted_curve_is_the_curve(values):
    curve = np.sort(np.array(values))
    assert np.array_equal(running_median(curve, HALF_WINDOW), curve)
