"""Plots of the device: the fitted line, the limit and the probes that failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from batchlab.analysis.findings import Findings
from batchlab.report.figures.device import memory

Study = Callable[[str], Findings]


def test_memory_shows_line_limit_and_failures(study: Study) -> None:
    found = study("whole")
    assert found.memory is not None
    assert found.memory.line is not None
    figure = memory(found)
    line, ran, failed = figure.data
    assert line["y"][1] * 2**30 == pytest.approx(found.memory.line.intercept + found.memory.line.slope * line["x"][1])
    assert ran["x"] == [p.micro_batch_size for p in found.memory.points if p.fits]
    assert failed["x"] == [p.micro_batch_size for p in found.memory.points if not p.fits]
    assert figure.layout
    assert figure.layout["shapes"][0]["y0"] * 2**30 == pytest.approx(found.memory.limit_bytes)


def test_a_limit_far_above_the_peaks_is_not_drawn(study: Study) -> None:
    found = study("ten sizes")
    assert found.memory is not None
    ran = tuple(point for point in found.memory.points if point.fits)
    figure = memory(replace(found, memory=replace(found.memory, points=ran, limit_bytes=2**40)))
    assert figure.layout
    assert "shapes" not in figure.layout
