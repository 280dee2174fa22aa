"""The family of time–cost curves, on shapes with formulas."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.analysis.critical.tradeoff import SPACING, log_grid, shapes, tabulate


def test_both_exponents_1_are_the_textbook_curve() -> None:
    table = tabulate(np.array([1.0]), np.array([1.0]), np.zeros(1))
    log_ratio = np.linspace(-12, 12, 97)
    assert table.steps_at(log_ratio)[0] == pytest.approx(np.log1p(np.exp(-log_ratio)), abs=3e-4)
    assert table.least_samples[0] == pytest.approx(0, abs=3e-4)
    assert table.batch_of_steps(np.log([[2.0]]))[0, 0] == pytest.approx(0, abs=1e-3)
    assert table.batch_at(np.log([[2.0]]))[0, 0] == pytest.approx(0, abs=1e-3)


def test_samples_leave_their_minimum_and_steps_reach_theirs_with_the_exponents() -> None:
    a, b = 1.7, 0.6
    table = tabulate(np.array([a]), np.array([b]), np.zeros(1))
    small, large = np.array([-6.0, -5.0]), np.array([9.0, 10.0])
    samples = np.log(table.steps_at(small)[0] + small - table.least_samples[0])
    assert samples[1] - samples[0] == pytest.approx(a, rel=0.01)
    steps = np.log(table.steps_at(large)[0])
    assert steps[1] - steps[0] == pytest.approx(-b, rel=0.01)


def test_every_curve_is_monotone_and_convex() -> None:
    middle = np.abs(log_grid()) < 20
    slope = np.diff(shapes().steps[:, middle], axis=1)
    assert np.all(slope <= 0)
    assert np.all(slope >= -SPACING * (1 + 1e-9))
    assert np.all(np.diff(slope, axis=1) >= -1e-12)
