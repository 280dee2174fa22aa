from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.words.troubleshooting import troubles

Study = Callable[..., Any]
ISSUES = {
    *("Out of memory", "Training unstable", "Slow convergence", "Poor generalization"),
    *("Low throughput", "No winner", "Best at the edge"),
}


def here(found: Any) -> dict[str, str]:
    """Issue → what of it was seen."""
    return {row.issue: row.here for row in troubles(found)}


def test_every_row_can_be_looked_up_and_a_good_study_has_only_ties(synthetic_study: Study) -> None:
    found = here(assemble(*synthetic_study()))
    assert set(found) == ISSUES
    assert {issue: seen for issue, seen in found.items() if seen} == {"No winner": "batch 8–32 are within noise"}


def test_rows_that_apply_come_first_and_say_where(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(out_of_memory=(64,), max_micro_batch_size=16, diverges_above=3.0))
    rows = troubles(found)
    applying = [row for row in rows if row.here]
    assert rows[: len(applying)] == tuple(applying)
    assert here(found)["Out of memory"] == "training ran out of memory at batch 64"
    assert "diverged" in here(found)["Training unstable"]


def test_few_steps_single_seeds_and_edges_apply(synthetic_study: Study) -> None:
    assert "batch" in here(assemble(*synthetic_study(token_budget=64 * 64 * 20)))["Slow convergence"]
    assert here(assemble(*synthetic_study(seeds=1, max_extensions=0)))["No winner"] == "no seed was repeated"
    assert "batch 16 is at the end" in here(assemble(*synthetic_study(sizes=(16, 32, 64))))["Best at the edge"]


def test_slow_sizes_apply(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.throughput is not None
    slow = replace(found, throughput=replace(found.throughput, falls_off=(64,), disturbed=(4,)))
    assert here(slow)["Low throughput"] == (
        "batch 64 is slower than a smaller one; other programs used the processor at batch 4"
    )


def test_a_gap_is_poor_generalization_only_where_data_was_repeated(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study())
    assert found.surface is not None
    assert here(found)["Poor generalization"] == ""

    def repeated(row: Any) -> Any:
        if row.best is None:
            return row
        return replace(row, best=replace(row.best, runs=tuple(replace(run, epochs=3.0) for run in row.best.runs)))

    rows = tuple(map(repeated, found.surface.rows))
    found = replace(found, surface=replace(found.surface, rows=rows))
    assert "the data was repeated" in here(found)["Poor generalization"]
