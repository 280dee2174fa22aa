"""A power law through few optima, weighed against the literature."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.scaling import Exponent, fit_power_law

PUBLISHED = Exponent(0.5, 0.1)
VAGUE = Exponent(0.5, 50.0)


@given(exponent=st.floats(-1, 1), y0=st.floats(1e-5, 1e5), n=st.integers(2, 6))
def test_an_exact_power_law_is_found_whatever_is_published(exponent: float, y0: float, n: int) -> None:
    points = [(1e9 * 3.0**i, y0 * 3.0 ** (exponent * i)) for i in range(n)]
    law = fit_power_law(points, VAGUE)
    assert law.measured == pytest.approx(exponent, abs=1e-9)
    assert law.exponent == pytest.approx(exponent, abs=1e-3)
    assert law.at(1e9)[0] == pytest.approx(y0, rel=1e-2)


def test_one_point_has_the_published_exponent_with_its_uncertainty() -> None:
    law = fit_power_law([(1e9, 64.0)], PUBLISHED)
    assert law.measured is None
    assert (law.exponent, law.n) == (0.5, 1)
    assert (law.low, law.high) == pytest.approx((0.304, 0.696))
    assert law.at(4e9)[0] == pytest.approx(128.0)
    assert fit_power_law([(1e9, 64.0), (1e9, 81.0)], PUBLISHED).measured is None


@given(near=st.floats(1.1, 2), far=st.floats(30, 100), slope=st.floats(-1, 2))
def test_budgets_far_apart_count_for_more_than_budgets_close_together(near: float, far: float, slope: float) -> None:
    def weight(factor: float) -> float:
        law = fit_power_law([(1.0, 1.0), (factor, factor**slope)], PUBLISHED)
        return (law.exponent - PUBLISHED.mean) / (slope - PUBLISHED.mean)

    if abs(slope - PUBLISHED.mean) > 0.01:
        assert 0 <= weight(near) < 0.5 * weight(far) < 1
    close, distant = (fit_power_law([(1.0, 1.0), (f, f**slope)], PUBLISHED) for f in (near, far))
    assert distant.high - distant.low < close.high - close.low <= 4 * PUBLISHED.sd


def test_scatter_larger_than_assumed_widens_the_interval() -> None:
    calm = fit_power_law([(1, 1), (4, 2), (16, 4), (64, 8)], PUBLISHED)
    wild = fit_power_law([(1, 1), (4, 8), (16, 1), (64, 8)], PUBLISHED)
    assert calm.doublings == 0.3
    assert wild.doublings > 1
    assert wild.exponent_sd > calm.exponent_sd


@given(x=st.floats(1e6, 1e12))
def test_uncertainty_grows_with_distance(x: float) -> None:
    law = fit_power_law([(1e9, 64.0)], PUBLISHED)
    value, low, high = law.at(x)
    assert low < value < high
    assert math.log2(high / low) >= math.log2(law.at(1e9)[2] / law.at(1e9)[1]) - 1e-9


def test_intervals_hold_what_they_promise() -> None:
    """With exponents drawn as published and optima read with the stated error, 95 % of new optima are inside."""
    rng = random.Random(0)
    inside = 0
    for _ in range(2000):
        exponent = rng.gauss(PUBLISHED.mean, PUBLISHED.sd)
        points = [(x, 2.0 ** (exponent * math.log2(x) + rng.gauss(0, 0.3))) for x in (1.0, 4.0)]
        truth = 2.0 ** (exponent * math.log2(64.0) + rng.gauss(0, 0.3))
        _, low, high = fit_power_law(points, PUBLISHED).at(64.0)
        inside += low <= truth <= high
    assert 0.93 < inside / 2000 < 0.975


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(1.0, -1.0)], [(1.0, math.nan)], [(math.inf, 1.0)]])
def test_points_that_are_not_positive_numbers_are_an_error(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        fit_power_law(points, PUBLISHED)
