"""Figures as data: what they show, that they say their n, and that nothing a person typed gets through as HTML."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.findings import Findings
from batchlab.core.record import Outcome
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.figure import (
    MAX_POINTS,
    averaged,
    colour_names,
    downsample,
    label,
    log_axis,
    plain,
    size_axis,
)
from batchlab.report.figures.palette import THEMES

KEYS = [
    *("loss-batch", "loss-hours", "surface", "curves", "training", "gradients"),
    *("noise-scale", "cost-to-target", "speed", "memory"),
]
Study = Callable[[str], Findings]


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for inner in node.values():
            yield from texts(inner)
    elif isinstance(node, list | tuple):
        for inner in node:
            yield from texts(inner)


def test_every_state_gives_every_figure_or_a_reason(study: Study, state: str) -> None:
    figures = build_figures(study(state))
    assert list(figures) == KEYS
    for figure in figures.values():
        if not figure.drawable:
            assert figure.missing.endswith(".")
            continue
        json.dumps(plain([figure.data, figure.layout]), allow_nan=False)
        assert figure.data
        assert figure.caption.endswith(".")
        assert any(character.isdigit() for character in figure.caption), figure.caption
        used: set[str] = set()
        colour_names([figure.data, figure.layout], used.add)
        for theme in THEMES.values():
            assert used <= set(theme)
        axes = [value for key, value in (figure.layout or {}).items() if key[1:].startswith("axis")]
        assert len(axes) >= 2
        assert all(one["title"]["text"] for one in axes)


def test_both_themes_name_the_same_colours() -> None:
    assert set(THEMES["light"]) == set(THEMES["dark"])


def test_loss_against_batch_shows_the_as_good_set_with_its_intervals(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = build_figures(found)["loss-batch"]
    good = next(trace for trace in figure.data if trace.get("name") == "best, or cannot be told from it")
    expected = {row.global_batch_size: row.val_loss for row in found.surface.tied}
    assert good["x"] == sorted(expected)
    for size, value, up, down in zip(
        good["x"], good["y"], good["error_y"]["array"], good["error_y"]["arrayminus"], strict=True
    ):
        loss = expected[size]
        assert loss is not None
        assert (loss.low, loss.value, loss.high) == pytest.approx((value - down, value, value + up))
    worse = next(trace for trace in figure.data if trace.get("name") == "worse than the best")
    assert sorted(good["x"] + worse["x"]) == [4, 8, 16, 32, 64]


def test_a_single_seed_has_no_bars_and_says_so(study: Study) -> None:
    figure = build_figures(study("one seed"))["loss-batch"]
    assert "n = 1 run per point" in figure.caption
    assert not figure.layout or not figure.layout["shapes"]
    assert not any(trace["error_y"]["visible"] for trace in figure.data if "error_y" in trace)
    assert not any("worse" in trace.get("name", "") for trace in figure.data)


def test_starved_sizes_are_marked_and_not_joined(study: Study) -> None:
    found = study("undertrained")
    assert found.surface is not None
    undertrained = [row.global_batch_size for row in found.surface.rows if row.undertrained and row.best]
    assert undertrained
    figure = build_figures(found)["loss-batch"]
    marked = next(trace for trace in figure.data if trace.get("name", "").startswith("undertrained"))
    line = next(trace for trace in figure.data if trace["mode"] == "lines")
    assert marked["x"] == undertrained
    assert not set(undertrained) & set(line["x"])


def test_hours_are_those_of_the_measured_speed(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = build_figures(found)["loss-hours"]
    shown = sorted(x for trace in figure.data if "markers" in trace["mode"] for x in trace["x"])
    assert shown == pytest.approx(sorted((row.hours or 0) * 3600 for row in found.surface.rows))


def test_surface_holds_every_cell_and_marks_what_failed(study: Study) -> None:
    found = study("failures")
    assert found.surface is not None
    figure = build_figures(found)["surface"]
    heat, *others = figure.data
    sizes = [row.global_batch_size for row in found.surface.rows]
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    for row in found.surface.rows:
        for cell in row.cells:
            assert heat["z"][rates.index(cell.learning_rate)][sizes.index(row.global_batch_size)] == cell.mean_loss
    names = {"out of memory": Outcome.OUT_OF_MEMORY, "failed": Outcome.FAILED, "diverged": Outcome.DIVERGED}
    for name, outcome in names.items():
        marks = [trace for trace in others if trace.get("name") == name]
        cells = [c for r in found.surface.rows for c in r.cells if any(run.outcome is outcome for run in c.runs)]
        assert sum(len(trace["x"]) for trace in marks) == len(cells)
        assert cells
    symbols = [trace["marker"]["symbol"] for trace in others if "marker" in trace]
    assert len(symbols) == len(set(symbols))


def test_surface_outlines_the_best_cell_of_each_size(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = build_figures(found)["surface"]
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    expected = [(i, rates.index(r.best.learning_rate)) for i, r in enumerate(found.surface.rows) if r.best]
    assert figure.layout
    boxes = [box for box in figure.layout["shapes"] if box["line"]["color"] == "@ink"]
    assert [(round((b["x0"] + b["x1"]) / 2), round((b["y0"] + b["y1"]) / 2)) for b in boxes] == expected


def test_surface_outlines_the_as_good_set_and_shows_what_is_inferred_apart(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = build_figures(found)["surface"]
    sizes = [row.global_batch_size for row in found.surface.rows]
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    assert figure.layout
    boxes = [box for box in figure.layout["shapes"] if box["line"]["color"] == "@good"]
    assert [(sizes[round((b["x0"] + b["x1"]) / 2)], rates[round((b["y0"] + b["y1"]) / 2)]) for b in boxes] == [
        (cell.global_batch_size, cell.learning_rate) for cell in found.surface.tied_cells
    ]
    ran = {(cell.global_batch_size, cell.learning_rate) for row in found.surface.rows for cell in row.cells}
    inferred = {(cell.global_batch_size, cell.learning_rate): cell.val_loss for cell in found.surface.inferred}
    assert not ran & inferred.keys()
    if inferred:
        paler = next(trace for trace in figure.data if trace.get("opacity", 1) < 1)
        shown = {
            (sizes[x], rates[y]): value
            for y, values in enumerate(paler["z"])
            for x, value in enumerate(values)
            if value is not None
        }
        assert shown == inferred
        assert "inferred" in figure.caption


def test_memory_shows_line_limit_and_failures(study: Study) -> None:
    found = study("whole")
    assert found.memory is not None
    assert found.memory.line is not None
    figure = build_figures(found)["memory"]
    line, ran, failed = figure.data
    assert line["y"][1] * 2**30 == pytest.approx(found.memory.line.intercept + found.memory.line.slope * line["x"][1])
    assert ran["x"] == [p.micro_batch_size for p in found.memory.points if p.fits]
    assert failed["x"] == [p.micro_batch_size for p in found.memory.points if not p.fits]
    assert figure.layout
    assert figure.layout["shapes"][0]["y0"] * 2**30 == pytest.approx(found.memory.limit_bytes)


def test_studies_without_a_stage_say_why(study: Study) -> None:
    assert "not probed" in build_figures(study("no capacity"))["memory"].missing
    assert "not measured" in build_figures(study("no speed"))["speed"].missing
    assert "No training run has finished" in build_figures(study("nothing trained"))["curves"].missing
    assert "diverged" in build_figures(study("all diverged"))["loss-batch"].missing


def test_studies_in_samples_never_speak_of_tokens(study: Study) -> None:
    for figure in build_figures(study("samples")).values():
        for text in [figure.title, figure.caption, *texts(figure.data), *texts(figure.layout)]:
            assert "token" not in text.lower()


def test_no_plot_label_carries_html_that_a_person_typed(hostile: Findings) -> None:
    for figure in build_figures(hostile).values():
        for text in [*texts(figure.data), *texts(figure.layout)]:
            bare = text.replace("<br>", "").replace("<extra></extra>", "")
            assert "<" not in bare, text


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


def test_a_limit_far_above_the_peaks_is_told_not_drawn(study: Study) -> None:
    found = study("ten sizes")
    assert found.memory is not None
    ran = tuple(point for point in found.memory.points if point.fits)
    figure = build_figures(replace(found, memory=replace(found.memory, points=ran, limit_bytes=2**40)))["memory"]
    assert figure.layout
    assert "shapes" not in figure.layout
    assert "1024.00 GiB, far above this plot" in figure.caption


def test_downsampling_drops_what_is_not_a_number() -> None:
    assert downsample([(0.0, math.nan), (1.0, math.inf), (2.0, 3.0)]) == [(2.0, 3.0)]


def test_long_series_are_shortened_in_the_figures(study: Study) -> None:
    for figure in build_figures(study("ten sizes")).values():
        for trace in figure.data:
            assert len(trace["x"]) <= MAX_POINTS


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
