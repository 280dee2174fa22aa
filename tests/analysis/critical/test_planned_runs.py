"""Which runs a plan names."""

from __future__ import annotations

from batchlab.analysis.critical.planned_runs import plan_runs


def test_plan_fills_up_to_six_sizes() -> None:
    assert [run.batch for run in plan_runs([8.0, 128.0], "between")] == [16, 32, 64, 256]
    assert [run.batch for run in plan_runs([], "schedule")] == [1, 2, 4, 8, 16, 32]
    assert [run.batch for run in plan_runs([8.0, 16.0], "smaller")] == [2, 1]
    assert plan_runs([1.0, 2.0], "smaller") == ()
