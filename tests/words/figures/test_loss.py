from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.report.figures.loss import judged
from batchlab.words.figures.loss import (
    AT_EQUAL_TIME,
    NO_RUNS,
    WITH_NOISE,
    WITHOUT_NOISE,
    decision_caption,
    describe_size,
    no_loss,
)

Study = Callable[..., Any]


@pytest.fixture
def found(synthetic_study: Study) -> Findings:
    return assemble(*synthetic_study())


def test_the_caption_gives_n_the_band_and_where_time_comes_from(found: Findings) -> None:
    rows = judged(found.surface)
    said = decision_caption(found, rows, tolerated=True)
    assert "95 % intervals, n = " in said
    assert "extra tokens" in said
    assert said.endswith("Time is the budget divided by each size's measured speed.")
    untimed = [replace(row, hours=None) for row in rows]
    assert "Time is" not in decision_caption(found, untimed, tolerated=False)
    at_equal_time = replace(found, run_seconds=60.0)
    assert decision_caption(at_equal_time, rows, tolerated=False).endswith(AT_EQUAL_TIME)


def test_one_run_per_point_has_no_interval(synthetic_study: Study) -> None:
    single = assemble(*synthetic_study(seeds=1, max_extensions=0))
    assert "n = 1 run per point, so no intervals are shown." in decision_caption(
        single, judged(single.surface), tolerated=False
    )


def test_missing_losses_have_a_reason(synthetic_study: Study) -> None:
    assert no_loss(assemble(*synthetic_study(keep=0))) == NO_RUNS
    diverged = assemble(*synthetic_study(diverges_above=0.0))
    assert no_loss(diverged) == f"None of {len(diverged.runs)} training runs has a final validation loss: diverged."


def test_a_point_is_described_in_lines(found: Findings) -> None:
    assert found.surface is not None
    assert found.surface.best is not None
    where, loss, runs, *_ = describe_size(found.surface.best)
    assert where == "batch 16 at LR 1.0e-3"
    assert loss.startswith("loss 2.4")
    assert runs.endswith(" runs")
    undertrained = replace(found.surface.best, undertrained=True)
    assert len(describe_size(undertrained)) == len(describe_size(found.surface.best)) + 1


def test_without_noise_nothing_is_called_worse() -> None:
    assert len(set(WITH_NOISE)) == len(set(WITHOUT_NOISE)) == 5
    assert not any("worse" in name or "tied" in name for name in WITHOUT_NOISE)
