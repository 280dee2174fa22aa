"""The shape of a basin, and losses as the surrogate sees them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchlab.search.surrogate import Basins, linex, percent_of


def test_linex_is_a_parabola_near_zero_and_skewed_beyond() -> None:
    k = np.array([1.0])
    near, high, low = (float(linex(np.array([u]), k)[0]) for u in (1e-3, 2.0, -2.0))
    assert near == pytest.approx(1e-6, rel=1e-3)
    assert high == pytest.approx(2 * (math.e**2 - 3))
    assert low == pytest.approx(2 * (math.e**-2 + 1))
    assert float(linex(np.array([3.0]), np.array([0.0]))[0]) == pytest.approx(9.0, rel=1e-2)
    far = linex(np.array([100.0, 200.0]), np.array([1.0, 1.0]))
    assert np.isfinite(far).all()
    assert far[1] > far[0]


def test_the_ridge_rises_below_the_knee_and_is_flat_above() -> None:
    one = np.array([1.0])
    basin = Basins(batch=5 * one, rate=-9 * one, skew=one, slope=one, knee=0 * one, over_batch=one, batch_skew=one)
    ridge = basin.ridge(np.array([-5.0, -4.0, 5.0, 15.0, 16.0]))[0]
    assert ridge[2] == pytest.approx(-9.0)
    assert ridge[1] - ridge[0] == pytest.approx(1.0, abs=1e-2)
    assert ridge[4] - ridge[3] == pytest.approx(0.0, abs=1e-2)
    assert basin.excess(np.array([5.0]), np.array([-9.0]))[0, 0] == pytest.approx(0.0, abs=1e-9)


def test_percent_is_relative_for_positive_losses_and_finite_for_any() -> None:
    assert np.diff(percent_of([2.0, 2.02]))[0] == pytest.approx(100 * math.log(1.01))
    assert percent_of([-2.0, 1.0]).tolist() == [-100.0, 50.0]
    assert percent_of([0.0, 0.0]).tolist() == [0.0, 0.0]
    assert percent_of([]).tolist() == []
