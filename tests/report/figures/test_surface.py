"""The heat map over batch size × learning rate: every cell, what failed, what is tied, what is inferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.record import Outcome
from batchlab.report.figures.surface import MOST_LINES, surface

Study = Callable[[str], Findings]


def test_surface_holds_every_cell_and_marks_what_failed(study: Study) -> None:
    found = study("failures")
    assert found.surface is not None
    figure = surface(found)
    heat, *others = figure.data
    sizes = [row.global_batch_size for row in found.surface.rows]
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    for row in found.surface.rows:
        for cell in row.cells:
            assert heat["z"][rates.index(cell.learning_rate)][sizes.index(row.global_batch_size)] == cell.quoted_loss
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
    figure = surface(found)
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    expected = [(i, rates.index(r.best.learning_rate)) for i, r in enumerate(found.surface.rows) if r.best]
    assert figure.layout
    boxes = [box for box in figure.layout["shapes"] if box["line"]["color"] == "@ink"]
    assert [(round((b["x0"] + b["x1"]) / 2), round((b["y0"] + b["y1"]) / 2)) for b in boxes] == expected


def test_surface_outlines_the_tied_cells_and_shows_what_is_inferred_apart(study: Study) -> None:
    found = study("whole")
    assert found.surface is not None
    figure = surface(found)
    sizes = [row.global_batch_size for row in found.surface.rows]
    rates = sorted({cell.learning_rate for row in found.surface.rows for cell in row.cells})
    assert figure.layout
    boxes = [box for box in figure.layout["shapes"] if box["line"]["color"] == "@tied"]
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


def test_a_thousand_cells_have_thin_lines_and_no_numbers(synthetic_study: Callable[..., Any]) -> None:
    rates = [1e-4 * 1.05**i for i in range(100)]
    few = surface(assemble(*synthetic_study(seeds=1, max_extensions=0)))
    many = surface(assemble(*synthetic_study(range(8, 18), rates, seeds=1, max_extensions=0, token_budget=64 * 720720)))
    assert few.layout
    assert many.layout
    assert any(trace.get("mode") == "text" for trace in few.data)
    assert not any(trace.get("mode") == "text" for trace in many.data)
    assert (len(many.data[0]["z"]), len(many.data[0]["z"][0])) == (100, 10), "every cell is there"
    assert many.height < 1000
    assert 12 <= len(many.layout["yaxis"]["tickvals"]) <= MOST_LINES
