"""The picture of the decision: ties with their intervals, the tolerance, the recommended size, time from speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.cost import CURVATURE, margin
from batchlab.analysis.values import Interval
from batchlab.report.figures.loss import decision
from batchlab.words.figures.loss import RECOMMENDED, TIME, WITH_NOISE, WITHOUT_NOISE, tolerated

Study = Callable[[str], Findings]


def trace(found: Findings, name: str) -> dict[str, Any]:
    return next(one for one in decision(found).data if one.get("name") == name)


def test_loss_against_batch_shows_the_tied_sizes_with_its_intervals(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    good = trace(found, WITH_NOISE.tied)
    expected = {row.global_batch_size: row.val_loss for row in found.surface.tied}
    assert good["x"] == sorted(expected)
    for size, value, up, down in zip(
        good["x"], good["y"], good["error_y"]["array"], good["error_y"]["arrayminus"], strict=True
    ):
        loss = expected[size]
        assert loss is not None
        assert (loss.low, loss.value, loss.high) == pytest.approx((value - down, value, value + up))
    assert sorted(good["x"] + trace(found, WITH_NOISE.worse)["x"]) == [4, 8, 16, 32, 64]


def test_the_band_reaches_from_the_best_loss_to_what_the_tolerance_costs(study: Study) -> None:
    found = study("whole")
    figure = decision(found)
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.surface.best.val_loss is not None
    assert found.slope is not None
    assert figure.layout is not None
    (band,) = figure.layout["shapes"]
    tolerance = found.experiment.sweep.tolerance
    assert band["y0"] == found.surface.best.val_loss.value
    assert band["y1"] - band["y0"] == pytest.approx(margin(found.slope, tolerance, CURVATURE))
    assert trace(found, tolerated(tolerance))["x"] == [None]  # its entry in the legend


def test_the_ring_is_around_what_is_recommended(study: Study) -> None:
    found = study("whole")
    assert found.recommended is not None
    assert trace(found, RECOMMENDED)["x"] == [found.recommended.layout.global_batch_size]


def test_a_single_seed_has_no_bars_and_calls_nothing_worse(study: Study) -> None:
    found = study("one seed")
    points = [one for one in decision(found).data if "error_y" in one]
    assert points
    assert not any(one["error_y"]["visible"] for one in points)
    assert {one["name"] for one in points} <= set(WITHOUT_NOISE)


def test_undertrained_sizes_are_marked_and_not_joined(study: Study) -> None:
    found = study("undertrained")
    assert found.surface is not None
    undertrained = [row.global_batch_size for row in found.surface.rows if row.undertrained and row.best]
    assert undertrained
    line = next(one for one in decision(found).data if one["mode"] == "lines")
    assert trace(found, WITH_NOISE.undertrained)["x"] == undertrained
    assert not set(undertrained) & set(line["x"])


def test_time_is_that_of_the_measured_speed(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    shown = dict(zip(trace(found, TIME)["x"], trace(found, TIME)["y"], strict=True))
    assert shown == pytest.approx({row.global_batch_size: (row.hours or 0) * 3600 for row in found.surface.rows})


def test_without_a_measured_speed_there_is_no_time_and_no_second_panel(study: Study) -> None:
    figure = decision(study("no speed"))
    assert TIME not in [one.get("name") for one in figure.data]
    assert "yaxis2" not in (figure.layout or {})


def test_one_bad_size_does_not_flatten_the_others(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    *others, last = found.surface.rows
    bad = replace(last, val_loss=Interval(9.0))
    figure = decision(replace(found, surface=replace(found.surface, rows=(*others, bad))))
    assert figure.layout is not None
    low, high = figure.layout["yaxis"]["range"]
    losses = [row.val_loss.value for row in others if row.val_loss]
    assert low < min(losses) < max(losses) < high < 9.0
    assert "range" not in (decision(found).layout or {})["yaxis"]
