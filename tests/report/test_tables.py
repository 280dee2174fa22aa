"""What tables leave out of a study of very many runs, and that they say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.report.figures.curves import SEEDS, validation_curves
from batchlab.report.tables import MOST_RATES, cells_table, endings_table, rates_table, results_table

RATES = [1e-3 * 1.05**i for i in range(40)]


@pytest.fixture(scope="module")
def wide(synthetic_study: Callable[..., Any]) -> Findings:
    return assemble(*synthetic_study((8, 16), RATES, seeds=1, max_extensions=0))


def test_few_of_many_shared_learning_rates_are_compared_ends_included(wide: Findings) -> None:
    table, note = rates_table(wide)
    assert len(table.rows) == MOST_RATES + 1
    assert (table.rows[0].texts[0], table.rows[-2].texts[0]) == ("1.0e-3 for all", "6.7e-3 for all")
    assert f"{MOST_RATES} of 40 " in note


def test_all_of_few_are(synthetic_study: Callable[..., Any]) -> None:
    table, note = rates_table(assemble(*synthetic_study(seeds=1, max_extensions=0)))
    assert len(table.rows) == 4 + 1
    assert "evenly spaced" not in note


def test_curves_of_many_seeds_are_not_all_drawn(wide: Findings) -> None:
    assert wide.surface is not None

    def crowded(row: Any) -> Any:
        runs = tuple(replace(row.best.runs[0], seed=seed, run_id=f"{seed}") for seed in range(30))
        return replace(row, best=replace(row.best, runs=runs))

    found = replace(wide, surface=replace(wide.surface, rows=tuple(map(crowded, wide.surface.rows))))
    figure = validation_curves(found)
    assert len(figure.data) == 2 * SEEDS
    assert "44 runs with higher seeds are not drawn" in figure.caption


def test_a_cell_has_one_loss_in_every_table(synthetic_study: Callable[..., Any]) -> None:
    """That of its confirmation seeds where it has any; what is measured otherwise is told as a difference."""
    found = assemble(*synthetic_study(seeds=5, settings={"sweep": {"seeds": 3, "learning_rates": tuple(RATES[:4])}}))
    assert found.surface is not None
    assert found.surface.best is not None
    best = found.surface.best.best
    assert best is not None
    assert [run.seed for run in best.quoted_runs] == [3, 4]
    results, cells = results_table(found), cells_table(found)
    names = [column.name for column in cells.columns]
    told = {
        (row.texts[names.index("batch")], row.texts[names.index("LR")]): row.texts[names.index("val loss")]
        for row in cells.rows
    }
    headings = [column.name for column in results.columns]
    quoted, rate = headings.index("val loss"), headings.index("best LR")
    for row in results.rows:
        assert row.texts[quoted].startswith(told[row.texts[0], row.texts[rate]])
    assert names[-2] == "confirmation seeds"
    confirmed = [row for row in cells.rows if row.texts[-2].count(",") == 1]
    assert len(confirmed) == 2  # the best cell and its rival have seeds 3 and 4 beside the three that chose
    assert all(row.texts[-3].count(",") == 2 for row in confirmed)
    differences = [text for row in rates_table(found)[0].rows for text in row.texts[1 : 1 + len(results.rows)]]
    assert all(text[0] in "+−0" for text in differences)
    assert "end above lowest" in [column.name for column in endings_table(found).columns]
