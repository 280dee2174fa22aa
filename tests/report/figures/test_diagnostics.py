"""Plots of the diagnostic snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from batchlab.analysis.findings import Findings
from batchlab.report.figures.diagnostics import diagnostic_figures
from batchlab.report.figures.figure import colour_names, plain
from batchlab.report.figures.palette import THEMES
from batchlab.words.figures.diagnostics import LAYER_GRADIENTS, PHASE_NAMES, SAME_STEPS

Study = Callable[[str], Findings]
KEYS = ["same-steps", "layer-gradients", "layer-updates", "activations", "norm-layers", "attention", "heads", "phases"]


def test_every_quantity_has_its_plot_and_says_what_to_look_for(study: Study) -> None:
    figures = diagnostic_figures(study("snapshots"))
    assert [figure.key for figure in figures] == KEYS
    assert [figure.title for figure in figures][:2] == [SAME_STEPS.title, LAYER_GRADIENTS.title]
    for figure in figures:
        json.dumps(plain([figure.data, figure.layout]), allow_nan=False)
        assert figure.look_for.endswith(".")
        assert any(character.isdigit() for character in figure.caption)
        used: set[str] = set()
        colour_names([figure.data, figure.layout], used.add)
        assert all(used <= set(theme) for theme in THEMES.values())


def test_nothing_read_means_no_plots(study: Study) -> None:
    assert diagnostic_figures(study("whole")) == ()
    assert diagnostic_figures(study("nothing trained")) == ()


def test_all_curves_of_a_plot_are_read_at_the_same_tokens(study: Study) -> None:
    found = study("snapshots")
    for figure in diagnostic_figures(found):
        if figure.key not in ("phases", "heads"):
            (tokens,) = {tuple(trace["x"]) for trace in figure.data}
            assert set(tokens) <= set(found.diagnostics.snapshots)


def test_each_batch_size_has_one_legend_entry_a_plot(study: Study) -> None:
    for figure in diagnostic_figures(study("snapshots"))[:6]:
        shown = [trace["name"] for trace in figure.data if trace["showlegend"]]
        assert len(shown) == len(set(shown)) == 5


def test_phases_are_shares_of_a_step(study: Study) -> None:
    phases = diagnostic_figures(study("snapshots"))[-1]
    assert [trace["name"] for trace in phases.data] == list(PHASE_NAMES.values())
    forward = phases.data[1]
    assert list(forward["x"]) == ["4", "8", "16", "32", "64"]
    sums = [sum(of_size) for of_size in zip(*(trace["y"] for trace in phases.data), strict=True)]
    assert sums == pytest.approx([100.0] * 5)
    # three phases take a microsecond per token each, the optimizer 0.1 ms per step
    per_token = [1e-6 * 64 * size for size in (4, 8, 16, 32, 64)]
    assert forward["y"] == pytest.approx([100 * one / (3 * one + 1e-4) for one in per_token])
