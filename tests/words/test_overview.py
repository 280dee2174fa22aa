from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.core.check import CheckItem, StartLoss
from batchlab.words.overview import conclusion, summary

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def test_a_summary_tells_what_was_run_what_came_out_and_the_device(found: Findings) -> None:
    run, result, device = summary(found)
    assert (
        run
        == "This study trained recipe simulated at batch 4 to 64: 24 runs of 410k tokens each, all of which finished."
    )
    assert result.startswith("Batch 16 at learning rate 1.0e-3 had the lowest validation loss, 2.407 [")
    assert result.endswith("The loss is higher at smaller batches (4) and at larger ones (64).")
    assert device == (
        "The fastest batch size is 64, at 54.9k tok/s; the recommended one has 80 % of that. Micro-batches of 48 "
        "fit in memory."
    )


def test_failed_runs_are_counted(synthetic_study: Study) -> None:
    run = summary(assemble(*synthetic_study(out_of_memory=(64,), failed=(4,))))[0]
    assert "4 ran out of memory" in run
    assert "4 failed" in run
    assert run.endswith("the others finished.")


def test_without_seeds_nothing_is_claimed(synthetic_study: Study) -> None:
    single = assemble(*synthetic_study(seeds=1, max_extensions=0))
    assert "only luckier, is unknown" in summary(single)[1]
    decision, step = conclusion(single)
    assert "provisionally" in decision
    assert "--seeds 3" in step


def test_without_runs_there_is_no_result(synthetic_study: Study) -> None:
    nothing = replace(assemble(*synthetic_study(keep=0)), partial=True)
    assert summary(nothing)[0] == "No training run has finished yet."
    assert conclusion(nothing)[0].startswith("This study does not say what to train with.")
    assert "finishes the study" in conclusion(nothing)[-1]
    failed = CheckItem(name="loss", status="fail", finding=StartLoss(found="not_finite", loss=math.nan))
    unsound = replace(nothing, surface=None, checks=(failed,))
    assert summary(unsound)[0] == "The check of the task failed, so nothing was trained."
    assert conclusion(unsound)[0].endswith(summary(unsound)[0])
    assert conclusion(unsound)[-1] == "Next: fix what the check names, and run the same command again."


def test_a_conclusion_weighs_both_ends_and_names_the_next_step(found: Findings) -> None:
    decision, trade, step = conclusion(found)
    assert decision.startswith("Train with batch 16 at learning rate 1.0e-3")
    assert "batch 4 takes at least 2.1 times as long to the same loss" in trade
    assert "batch 64 reaches the same loss" in trade
    assert step == "Next: 19 further seeds at batch 16 and 32 would settle which to train with."


def test_the_best_at_an_edge_asks_for_sizes_beyond(synthetic_study: Study) -> None:
    assert "try smaller batch sizes" in conclusion(assemble(*synthetic_study(sizes=(16, 32, 64))))[-1]
    assert "try larger batch sizes" in conclusion(assemble(*synthetic_study(sizes=(4, 8, 16))))[-1]
