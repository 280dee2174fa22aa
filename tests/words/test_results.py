from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Comparison, LossSpike
from batchlab.core.batch import Unit
from batchlab.words.results import banner, describe_spike, equal_cost, remark, results_note
from batchlab.words.units import Units

Study = Callable[..., tuple[Any, Any, Any, Any, Any]]
TOKENS = Units(Unit.TOKENS, 64)


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def test_an_unfinished_study_says_how_far_it_is(synthetic_study: Study) -> None:
    for keep, planned, text in (
        (9, 31, "Partial: 9 of 31 planned training runs are done."),
        (0, None, "Partial: 0 training runs are done."),
        (1, None, "Partial: 1 training run is done."),
    ):
        cut = replace(assemble(*synthetic_study(keep=keep)), planned_runs=planned, partial=True)
        assert banner(cut).startswith(text)
    assert banner(assemble(*synthetic_study())) == ""


def test_the_note_names_ties_repeats_and_times(found: Findings, synthetic_study: Study) -> None:
    tied = assemble(*synthetic_study(batch_curvature=0.0005))
    assert tied.surface is not None
    sizes = [f"{row.global_batch_size}" for row in tied.surface.tied]
    assert f"The marked sizes, {', '.join(sizes[:-1])} and {sizes[-1]}, are statistically tied." in results_note(tied)
    assert found.surface is not None
    assert f"n = {found.surface.noise_seeds} runs at repeated cells" in results_note(found)
    assert "Noise was not measured (n = 1)" in results_note(assemble(*synthetic_study(seeds=1, max_extensions=0)))
    assert results_note(assemble(*synthetic_study(keep=0))) == ""


def test_a_size_has_a_remark(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(out_of_memory=(64,), failed=(4,), max_micro_batch_size=16))
    assert found.surface is not None
    rows = {row.global_batch_size: row for row in found.surface.rows}
    assert "failed" in remark(rows[4])
    assert remark(replace(rows[16], edge="low")) != remark(rows[16])
    assert "out of memory" in remark(rows[64])


def test_equal_costs_and_spikes() -> None:
    assert equal_cost(Comparison("hours", 2.0, ()), TOKENS) == "equal time (2 h)"
    assert equal_cost(Comparison("steps", 1200.0, ()), TOKENS) == "equal steps (1,200)"
    assert equal_cost(Comparison("tokens", 512_000.0, ()), TOKENS) == "equal tokens (512k)"
    spike = LossSpike("run", 840, 215_040, 5.9, 2.979, 1)
    assert describe_spike(spike, TOKENS) == "+2.979 at step 840 (215k tokens)"
