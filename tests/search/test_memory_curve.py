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


def test_one_known_size_says_the_same_everywhere() -> None:
    curve = MemoryCurve.through([(4, (7.0, 3.0))])
    assert (curve.at(1), curve.at(100), curve.slope) == (7.0, 7.0, 0.0)
    assert curve.largest_within(6, 50) == 0
    assert curve.largest_within(7, 50) == 50


@given(truth=st.integers(0, 200), most=st.integers(1, 200))
def test_largest_size(truth: int, most: int) -> None:
    assert largest_size(lambda size: size <= truth, most) == min(truth, most)
