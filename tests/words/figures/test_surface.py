from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import Inferred
from batchlab.core.record import Outcome
from batchlab.words.figures.surface import describe_cell, describe_fitted, describe_inferred, surface_caption

Study = Callable[..., Any]


def test_the_caption_counts_cells_and_runs(synthetic_study: Study) -> None:
    surface = assemble(*synthetic_study()).surface
    assert surface is not None
    cells = [cell for row in surface.rows for cell in row.cells]
    runs = sum(len(cell.runs) for cell in cells)
    bare = replace(surface, inferred=())
    said = surface_caption(bare, None)
    assert said.startswith(f"{len(cells)} cells, n = {runs} runs. ")
    assert "colour scale" not in said
    assert "The colour scale ends at 2.500" in surface_caption(bare, 2.5)
    one = replace(surface, inferred=(Inferred(4, 1e-3, 2.5, 1.0),))
    assert "1 paler cell marked ≈ was not run either" in surface_caption(one, None)


def test_a_cell_lists_its_seeds(synthetic_study: Study) -> None:
    surface = assemble(*synthetic_study()).surface
    assert surface is not None
    assert surface.best is not None
    assert surface.best.best is not None
    cell = surface.best.best
    lines = describe_cell(16, 1e-3, cell)
    assert lines[0] == "batch 16, LR 1.0e-3"
    assert len(lines) == 1 + len(cell.runs)
    assert lines[1].startswith("seed 0: 2.4")
    failed = replace(cell.runs[0], outcome=Outcome.DIVERGED, reason="x" * 200)
    assert describe_cell(16, 1e-3, replace(cell, runs=(failed,)))[1] == f"seed 0: diverged. {'x' * 120}"
    assert describe_cell(4, 2e-3, None) == ("batch 4, LR 2.0e-3", "not run")


def test_inferred_and_fitted_are_named_as_such() -> None:
    assert describe_inferred(Inferred(4, 2e-3, 2.5, 1.25)) == (
        "batch 4, LR 2.0e-3",
        "not run",
        "inferred: 2.500 ± 1.2 %",
    )
    assert describe_fitted((1e-3,)) == ["fitted optimum: LR 1.0e-3"]
