"""Bytes against size from a few traced sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.search.memory_curve import MemoryCurve, largest_size

SIZES = st.integers(1, 10_000)


@given(flat=st.integers(0, 10**9), fixed=st.integers(0, 10**9), slope=st.integers(1, 10**8), size=SIZES)
def test_two_phases_known_at_two_sizes_are_known_everywhere(flat: int, fixed: int, slope: int, size: int) -> None:
    curve = MemoryCurve.through([(n, (flat, fixed + slope * n)) for n in (32, 2)])
    assert curve.at(size) == pytest.approx(max(flat, fixed + slope * size))


@given(flat=st.integers(0, 10**9), slope=st.integers(1, 10**8), budget=st.integers(1, 10**10), most=SIZES)
def test_the_largest_within_fits_and_the_next_does_not(flat: int, slope: int, budget: int, most: int) -> None:
    curve = MemoryCurve.through([(n, (flat, slope * n)) for n in (2, 8)])
    largest = curve.largest_within(budget, most)
    assert largest == 0 or curve.at(largest) <= budget
    assert largest == most or curve.at(largest + 1) > budget


def test_the_knee_is_where_the_growing_phase_takes_over() -> None:
    assert MemoryCurve.through([(n, (100.0, 10.0 * n)) for n in (2, 8, 32)]).knee == 10
    assert MemoryCurve.through([(n, (10.0 * n,)) for n in (2, 8)]).knee == 1
    assert MemoryCurve.through([(4, (7.0,))]).knee == 1


def test_a_curve_is_straight_where_smaller_sizes_forecast_the_next() -> None:
    assert MemoryCurve.through([(n, (500.0, 10.0 * n)) for n in (2, 32, 900)]).straight_at(450, 1e-9)
    assert not MemoryCurve.through([(n, (10.0 * n + 0.01 * n**2,)) for n in (2, 32, 900)]).straight_at(450, 0.005)
    assert not MemoryCurve.through([(n, (10.0 * n,)) for n in (8, 900)]).straight_at(450, 0.005), "one size below"
    assert not MemoryCurve.through([(n, (10.0 * n,)) for n in (2, 32)]).straight_at(450, 0.005), "none above"


def test_a_bend_below_straight_points_is_still_a_bend() -> None:
    bent = MemoryCurve.through([(n, (max(300.0 + n, 10.0 * n),)) for n in (2, 32, 700, 800, 900)])
    assert not bent.straight_at(400, 0.005)
    assert bent.straight_at(850, 0.005)


@given(fixed=st.integers(0, 10**6), slope=st.integers(1, 1000), bend=st.integers(1, 1000), truth=st.integers(40, 900))
def test_a_parabola_is_found_from_three_of_its_points(fixed: int, slope: int, bend: int, truth: int) -> None:
    def needed(size: int) -> float:
        return float(fixed + slope * size + bend * size**2)

    curve = MemoryCurve.through([(n, (needed(n), 0.0)) for n in (2, 32, 1000)])
    budget = needed(truth) + slope / 2
    assert curve.likely_largest_within(budget, 10_000) == truth
    assert curve.largest_within(budget, 10_000) <= truth


@given(steep=st.integers(2, 50), bend=st.integers(50, 800), budget=st.integers(1000, 40_000))
def test_where_a_line_bends_the_likely_size_lies_between_the_known_ones(steep: int, bend: int, budget: int) -> None:
    points = [(n, (max(1000.0 + n, 1000.0 + bend + steep * (n - bend)),)) for n in (2, 32, 1000)]
    curve = MemoryCurve.through(points)
    likely = curve.likely_largest_within(budget, 10_000)
    assert likely >= curve.largest_within(budget, 10_000)
    assert likely < 1000 or curve.at(1000) <= budget


def test_one_known_size_says_the_same_everywhere() -> None:
    curve = MemoryCurve.through([(4, (7.0, 3.0))])
    assert (curve.at(1), curve.at(100), curve.slope) == (7.0, 7.0, 0.0)
    assert curve.largest_within(6, 50) == 0
    assert curve.largest_within(7, 50) == 50


@given(truth=st.integers(0, 200), most=st.integers(1, 200))
def test_largest_size(truth: int, most: int) -> None:
    assert largest_size(lambda size: size <= truth, most) == min(truth, most)
