"""What a size needs, by traces and by measurements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.search.forecast import Forecast, needed_bytes
from batchlab.search.memory_curve import MemoryCurve


def test_offsets_are_constant_after_one_measurement_and_on_a_line_after_two() -> None:
    curve = MemoryCurve.through([(n, (10.0 * n,)) for n in (2, 8)])
    assert needed_bytes(curve, {}, 20) == 200
    assert needed_bytes(curve, {10: 105}, 20) == 205
    assert needed_bytes(curve, {10: 105, 20: 215}, 30) == 325
    assert needed_bytes(None, {10: 105}, 20) == 210
    assert needed_bytes(None, {10: 105, 20: 205}, 30) == 305


def test_two_measurements_side_by_side_are_no_slope() -> None:
    curve = MemoryCurve.through([(n, (10.0 * n,)) for n in (2, 8)])
    assert needed_bytes(curve, {44: 450, 45: 440}, 8) == 80 - 10
    assert needed_bytes(curve, {20: 200, 44: 450, 45: 440}, 8) == pytest.approx(80 - 10 + 10 * 37 / 25)
    assert needed_bytes(None, {44: 450, 45: 441}, 90) == pytest.approx(882)


@given(
    fixed=st.integers(0, 10**9),
    slope=st.integers(1, 10**6),
    square=st.integers(0, 10**4),
    more=st.integers(1, 10**4),
)
def test_a_parabola_is_known_from_three_sizes(fixed: int, slope: int, square: int, more: int) -> None:
    def needed(size: int) -> int:
        return fixed + slope * size + square * size**2

    forecast = Forecast.through({size: needed(size) for size in (4, 9, 30)})
    assert forecast.at(30 + more) == pytest.approx(needed(30 + more))
    assert forecast.at_most(30 + more) >= forecast.at(30 + more)


@given(fixed=st.integers(0, 10**6), slope=st.integers(0, 10**6), square=st.integers(0, 10**4), more=st.integers(1, 999))
def test_no_parabola_with_positive_terms_exceeds_at_most(fixed: int, slope: int, square: int, more: int) -> None:
    def needed(size: int) -> int:
        return 1 + fixed + slope * size + square * size**2

    for known in ((4,), (4, 9)):
        forecast = Forecast.through({size: needed(size) for size in known})
        assert forecast.at_most(known[-1] + more) >= needed(known[-1] + more) * (1 - 1e-9)


def test_what_lies_below_a_kink_is_left_out() -> None:
    flat = Forecast.through({4: 100, 16: 100, 64: 110, 100: 150, 200: 250})
    assert flat.at(300) == pytest.approx(350, rel=0.02)
