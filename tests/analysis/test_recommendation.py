from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.recommendation import Objective, recommend_for
from batchlab.analysis.values import BatchRow, Goal, ReachesLoss
from batchlab.core.errors import InputError
from batchlab.plan import make_plan
from batchlab.words.reasons import describe_reason

Study = Callable[..., Any]


@pytest.fixture
def findings(synthetic_study: Study) -> Findings:
    """Batch 64 is the fastest of five statistically tied sizes, all evaluated along their runs."""
    return assemble(*synthetic_study(batch_curvature=0.0005))


def crossing(row: BatchRow, loss: float) -> float:
    """Tokens at which the straight line between two evaluations of the row's first run crosses the loss."""
    assert row.best is not None
    for (before, high), (after, low) in pairwise(row.best.runs[0].val_curve):
        if high >= loss > low:
            return before + (after - before) * (high - loss) / (high - low)
    raise AssertionError("not crossed")


def single(findings: Findings) -> Findings:
    """One run of every cell, so that a mean curve is that run's."""
    assert findings.surface is not None

    def first_run(row: BatchRow) -> BatchRow:
        assert row.best is not None
        return replace(row, best=replace(row.best, runs=row.best.runs[:1]))

    rows = tuple(first_run(row) for row in findings.surface.rows)
    return replace(findings, surface=replace(findings.surface, rows=rows))


def a_loss_on_the_way(findings: Findings) -> float:
    """One that every tied size comes down to, between its evaluations."""
    assert findings.surface is not None
    ends = []
    for row in findings.surface.tied:
        assert row.best is not None
        losses = [loss for _, loss in row.best.runs[0].val_curve]
        ends.append((losses[-2] + losses[-1]) / 2)
    return max(ends)


def test_soonest_is_the_least_time_and_cheapest_the_fewest_tokens_to_a_loss(findings: Findings) -> None:
    found = single(findings)
    assert found.surface is not None
    loss = a_loss_on_the_way(found)
    tokens = {row.global_batch_size: crossing(row, loss) for row in found.surface.tied}
    seconds = {
        row.global_batch_size: tokens[row.global_batch_size] / row.tokens_per_second
        for row in found.surface.tied
        if row.tokens_per_second
    }
    soonest = recommend_for(found, Objective("soonest", loss))
    cheapest = recommend_for(found, Objective("cheapest", loss))
    assert soonest.layout.global_batch_size == min(seconds, key=lambda size: seconds[size])
    assert cheapest.layout.global_batch_size == min(tokens, key=lambda size: tokens[size])
    size = soonest.layout.global_batch_size
    assert isinstance(soonest.reason, ReachesLoss)
    assert (soonest.reason.loss, soonest.reason.highest_of_tied) == (loss, False)
    assert soonest.reason.cost.batch_size == size
    assert soonest.reason.cost.budget_share == pytest.approx(tokens[size] / (found.token_budget or 1))
    assert soonest.reason.cost.seconds == pytest.approx(seconds[size])
    assert isinstance(cheapest.reason, ReachesLoss)
    assert cheapest.reason.cost.seconds is None


def test_slow_sizes_lose_time_but_no_tokens(findings: Findings) -> None:
    assert findings.surface is not None
    loss = a_loss_on_the_way(findings)
    cheapest = recommend_for(findings, Objective("cheapest", loss)).layout.global_batch_size
    soonest = recommend_for(findings, Objective("soonest", loss)).layout.global_batch_size
    rows = tuple(
        replace(row, tokens_per_second=1e-3 if row.global_batch_size == soonest else row.tokens_per_second)
        for row in findings.surface.rows
    )
    slower = replace(findings, surface=replace(findings.surface, rows=rows))
    assert recommend_for(slower, Objective("soonest", loss)).layout.global_batch_size != soonest
    assert recommend_for(slower, Objective("cheapest", loss)).layout.global_batch_size == cheapest


@pytest.mark.parametrize("goal", ["quality", "fastest", "soonest", "cheapest", "largest"])
def test_a_plan_serves_the_objective_of_the_report(findings: Findings, goal: Goal) -> None:
    wanted = next(item for item in findings.recommendations if item.goal == goal)
    plan = make_plan(findings, objective=Objective(goal))
    assert plan.batch_configuration.layout == wanted.layout
    assert plan.batch_configuration.learning_rate == wanted.learning_rate
    assert plan.provenance["global_batch_size"].source.endswith(describe_reason(wanted.reason))


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (Objective("cheapest", 0.01), "came down to a loss of 0.01"),
        (Objective("quality", 2.0), "goes with soonest or cheapest"),
    ],
)
def test_what_was_not_measured_is_refused(findings: Findings, objective: Objective, says: str) -> None:
    with pytest.raises(InputError, match=says):
        recommend_for(findings, objective)


def test_time_to_a_loss_needs_speed(findings: Findings) -> None:
    assert findings.surface is not None
    rows = tuple(replace(row, tokens_per_second=None) for row in findings.surface.rows)
    unmeasured = replace(findings, surface=replace(findings.surface, rows=rows))
    with pytest.raises(InputError, match="ask for cheapest"):
        recommend_for(unmeasured, Objective("soonest", a_loss_on_the_way(findings)))
