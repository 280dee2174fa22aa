"""Curves as Unicode bars."""

from __future__ import annotations

from collections.abc import Callable

from batchlab.analysis.findings import Findings
from batchlab.report.sparklines import loss_curves, readings_table, sparkline


def test_sparkline() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0, float("nan"), 1.0]) == "▅ ▅"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(500)))) == 24


def test_loss_curves_share_one_scale(study: Callable[[str], Findings]) -> None:
    found = study("whole")
    curves = loss_curves(found)
    assert [row.texts[0] for row in curves.table.rows] == ["4", "8", "16", "32", "64"]
    losses = [loss for run in found.runs for _, loss in run.val_curve]
    assert min(losses) <= curves.low < curves.high <= max(losses)
    assert not loss_curves(study("nothing trained")).table.rows


def test_readings_have_one_row_per_quantity_and_batch_size(study: Callable[[str], Findings]) -> None:
    rows = [row.texts for row in readings_table(study("snapshots")).rows]
    assert {row[2] for row in rows} == {"4", "8", "16", "32", "64"}
    assert ("update ratio", "all") in {row[:2] for row in rows}
    assert ("attention entropy", "blocks.2") in {row[:2] for row in rows}  # a layer, not a head
    assert "seconds" not in {row[0] for row in rows}
    assert not readings_table(study("whole")).rows
