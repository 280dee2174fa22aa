"""Plots of final losses: ties with their intervals, undertrained sizes apart, time from measured speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchlab.analysis.findings import Findings
from batchlab.report.figures.loss import loss_vs_batch, loss_vs_hours
from batchlab.words.figures.loss import WITH_NOISE, WITHOUT_NOISE

Study = Callable[[str], Findings]


def test_loss_against_batch_shows_the_tied_sizes_with_its_intervals(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = loss_vs_batch(found)
    good = next(trace for trace in figure.data if trace.get("name") == WITH_NOISE.tied)
    expected = {row.global_batch_size: row.val_loss for row in found.surface.tied}
    assert good["x"] == sorted(expected)
    for size, value, up, down in zip(
        good["x"], good["y"], good["error_y"]["array"], good["error_y"]["arrayminus"], strict=True
    ):
        loss = expected[size]
        assert loss is not None
        assert (loss.low, loss.value, loss.high) == pytest.approx((value - down, value, value + up))
    worse = next(trace for trace in figure.data if trace.get("name") == WITH_NOISE.worse)
    assert sorted(good["x"] + worse["x"]) == [4, 8, 16, 32, 64]


def test_a_single_seed_has_no_bars_and_calls_nothing_worse(study: Study) -> None:
    figure = loss_vs_batch(study("one seed"))
    assert not figure.layout or not figure.layout["shapes"]
    assert not any(trace["error_y"]["visible"] for trace in figure.data if "error_y" in trace)
    assert {trace["name"] for trace in figure.data if trace["mode"] == "markers"} <= {*WITHOUT_NOISE, "single runs"}


def test_undertrained_sizes_are_marked_and_not_joined(study: Study) -> None:
    found = study("undertrained")
    assert found.surface is not None
    undertrained = [row.global_batch_size for row in found.surface.rows if row.undertrained and row.best]
    assert undertrained
    figure = loss_vs_batch(found)
    marked = next(trace for trace in figure.data if trace.get("name") == WITH_NOISE.undertrained)
    line = next(trace for trace in figure.data if trace["mode"] == "lines")
    assert marked["x"] == undertrained
    assert not set(undertrained) & set(line["x"])


def test_hours_are_those_of_the_measured_speed(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = loss_vs_hours(found)
    shown = sorted(x for trace in figure.data if "markers" in trace["mode"] for x in trace["x"])
    assert shown == pytest.approx(sorted((row.hours or 0) * 3600 for row in found.surface.rows))
