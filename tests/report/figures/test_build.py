"""Figures as data: what they show, that they say their n, and that nothing a person typed gets through as HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from batchlab.analysis.findings import Findings
from batchlab.report.figures.build import build_figures
from batchlab.report.figures.figure import MAX_POINTS, colour_names, plain
from batchlab.report.figures.palette import THEMES
from batchlab.words.figures.device import NO_MEMORY, NO_SPEED
from batchlab.words.figures.loss import NO_RUNS, no_loss

KEYS = [
    *("decision", "surface", "speed", "memory", "curves", "training", "gradients"),
    *("noise-scale", "cost-to-target"),
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


def test_studies_without_a_stage_say_why(study: Study) -> None:
    assert build_figures(study("no capacity"))["memory"].missing == NO_MEMORY
    assert build_figures(study("no speed"))["speed"].missing == NO_SPEED
    assert build_figures(study("nothing trained"))["curves"].missing == NO_RUNS
    assert build_figures(study("all diverged"))["decision"].missing == no_loss(study("all diverged"))


def test_studies_in_samples_never_speak_of_tokens(study: Study) -> None:
    for figure in build_figures(study("samples")).values():
        for text in [figure.title, figure.caption, *texts(figure.data), *texts(figure.layout)]:
            assert "token" not in text.lower()


def test_no_plot_label_carries_html_that_a_person_typed(hostile: Findings) -> None:
    for figure in build_figures(hostile).values():
        for text in [*texts(figure.data), *texts(figure.layout)]:
            bare = text.replace("<br>", "").replace("<extra></extra>", "")
            assert "<" not in bare, text


def test_long_series_are_shortened_in_the_figures(study: Study) -> None:
    for figure in build_figures(study("ten sizes")).values():
        for trace in figure.data:
            assert len(trace["x"]) <= MAX_POINTS
