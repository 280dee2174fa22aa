"""What tables leave out of a study of very many runs, and that they say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.report.figures.curves import SEEDS, validation_curves
from batchlab.report.tables import MOST_RATES, rates_table

RATES = [1e-3 * 1.05**i for i in range(40)]


@pytest.fixture(scope="module")
def wide(synthetic_study: Callable[..., Any]) -> Findings:
    return assemble(*synthetic_study((8, 16), RATES, seeds=1, max_extensions=0))


def test_few_of_many_shared_learning_rates_are_compared_ends_included(wide: Findings) -> None:
    table, note = rates_table(wide)
    assert len(table.rows) == MOST_RATES + 1
    assert (table.rows[0].texts[0], table.rows[-2].texts[0]) == ("1.0e-3 for all", "6.7e-3 for all")
    assert note.startswith(f"{MOST_RATES} of 40 ")


def test_all_of_few_are(synthetic_study: Callable[..., Any]) -> None:
    table, note = rates_table(assemble(*synthetic_study(seeds=1, max_extensions=0)))
    assert len(table.rows) == 4 + 1
    assert note == ""


def test_curves_of_many_seeds_are_not_all_drawn(wide: Findings) -> None:
    assert wide.surface is not None

    def crowded(row: Any) -> Any:
        runs = tuple(replace(row.best.runs[0], seed=seed, run_id=f"{seed}") for seed in range(30))
        return replace(row, best=replace(row.best, runs=runs))

    found = replace(wide, surface=replace(wide.surface, rows=tuple(map(crowded, wide.surface.rows))))
    figure = validation_curves(found)
    assert len(figure.data) == 2 * SEEDS
    assert "44 runs with higher seeds are not drawn" in figure.caption
