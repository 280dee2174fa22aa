"""Axes, labels and shortened series."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.report.figures.figure import averaged, downsample, label, lines, log_axis, size_axis


def test_label_takes_html_away() -> None:
    assert label("<b>&</b>") == "&lt;b&gt;&amp;&lt;/b&gt;"


@given(st.lists(st.floats(-1e6, 1e6), max_size=2000), st.integers(6, 200))
def test_downsampling_keeps_real_points_ends_and_extremes(values: list[float], limit: int) -> None:
    points = [(float(i), value) for i, value in enumerate(values)]
    kept = downsample(points, limit)
    assert len(kept) <= limit
    assert set(kept) <= set(points)
    assert kept == sorted(kept)
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
        assert min(y for _, y in kept) == min(values)
        assert max(y for _, y in kept) == max(values)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=500), st.integers(1, 100))
def test_averaging_keeps_the_mean_where_stretches_are_equal(values: list[float], stretches: int) -> None:
    values *= stretches
    means = averaged([(float(i), value) for i, value in enumerate(values)], stretches)
    assert len(means) <= max(stretches, 1)
    assert sum(y for _, y in means) / len(means) == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_downsampling_drops_what_is_not_a_number() -> None:
    assert downsample([(0.0, math.nan), (1.0, math.inf), (2.0, 3.0)]) == [(2.0, 3.0)]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_size_ticks_never_touch_and_keep_the_largest(sizes: list[int]) -> None:
    made = size_axis("", sizes)
    ticks = made["tickvals"]
    assert ticks[-1] == max(sizes)
    low, high = made["range"]
    places = [(math.log10(tick) - low) / (high - low) for tick in ticks]
    assert all(later - earlier > 0.05 for earlier, later in itertools.pairwise(places))


def test_log_ticks_are_round_numbers() -> None:
    made = log_axis("", [0.011, 0.075])
    assert [t for t in made["ticktext"] if 0.01 <= float(t) <= 0.1] == ["0.01", "0.02", "0.05", "0.1"]


def test_lines_escape_each_text() -> None:
    assert lines(("a <b>", "c")) == "a &lt;b&gt;<br>c"


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.1, 1.45], ["1.1", "1.2", "1.3", "1.4"]),
        ([5.1, 7.4], ["6", "7"]),
        ([0.9, 3000.0], ["1", "10", "100", "1000"]),
        ([0.3, 0.3], []),
    ],
)
def test_narrow_log_axes_have_finer_ticks(values: list[float], ticks: list[str]) -> None:
    made = log_axis("", values)
    assert [t for t in made["ticktext"] if min(values) <= float(t) <= max(values)] == ticks
