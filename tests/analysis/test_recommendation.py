from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings
from batchlab.analysis.recommendation import Objective, recommend_for
from batchlab.analysis.values import BatchRow
from batchlab.analysis.verdict import CostsMore, Goal, ReachesLoss, Soonest, Unresolved, WithinTolerance
from batchlab.core.batch import Unit
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
    assert soonest.reason.loss == loss
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


def quiet(study: Study, **settings: Any) -> Findings:
    """Batch 16 is best by little, larger sizes are faster, and what a doubling of the tokens gains is known."""
    return assemble(*study(**{"noise_sd": 0.0005, "fall": 0.1, "seeds": 5, "batch_curvature": 0.0005} | settings))


def test_another_size_is_recommended_only_if_shown_to_cost_no_more(synthetic_study: Study) -> None:
    """Batch 32 is 0.0005 nats above the best, 0.35 to 0.5 % of the tokens at 0.1 nats a doubling, and 16 % faster."""
    sweep = {"learning_rates": (7.5e-4, 1.5e-3, 3e-3), "seeds": 5, "confirm": 0}
    found = quiet(synthetic_study, learning_rates=(7.5e-4, 1.5e-3, 3e-3), lr_exponent=0.0, settings={"sweep": sweep})
    unconfirmed = {cost.global_batch_size: cost for cost in found.costs}
    assert not unconfirmed[32].shown  # the seed that chose it is among its seeds
    shown = quiet(
        synthetic_study,
        learning_rates=(7.5e-4, 1.5e-3, 3e-3),
        lr_exponent=0.0,
        settings={"sweep": sweep | {"seeds": 3, "confirm": 2}},
    )
    costs = {cost.global_batch_size: cost for cost in shown.costs}
    assert costs[32].shown
    assert costs[32].tokens is not None
    assert costs[32].tokens.low is not None
    assert costs[32].tokens.high is not None
    assert costs[32].tokens.low < 2 ** (0.0005 / 0.1) - 1 < costs[32].tokens.high <= 0.03
    assert shown.recommended is not None
    assert shown.recommended.layout.global_batch_size == 32
    assert shown.recommended.reason == WithinTolerance(0.03, 16)
    assert shown.recommended.cost == costs[32]
    assert costs[32].time == pytest.approx((1 + costs[32].tokens.value) * (16 / 22) / (32 / 38))


def test_not_rejected_is_not_equal(synthetic_study: Study) -> None:
    """With the noise of a small study the larger sizes are tied and faster, and yet not recommended."""
    found = quiet(synthetic_study, noise_sd=0.004)
    assert found.surface is not None
    assert found.surface.best is not None
    assert found.recommended is not None
    best = found.surface.best.global_batch_size
    assert len(found.surface.tied) > 1
    assert found.recommended.layout.global_batch_size == best
    assert isinstance(found.recommended.reason, Unresolved)
    other = found.recommended.reason.other
    assert other.more_seeds is not None
    assert other.time is not None
    assert other.time < 1
    soonest = next(item for item in found.recommendations if item.goal == "soonest")
    assert soonest.cost is not None
    assert soonest.cost.time == min(cost.time for cost in found.costs if cost.time is not None)


def test_sizes_whose_learning_rate_is_not_enclosed_may_hide_the_soonest(synthetic_study: Study) -> None:
    def maybe_sooner(found: Findings) -> tuple[int, ...]:
        soonest = next(item for item in found.recommendations if item.goal == "soonest")
        assert isinstance(soonest.reason, Soonest)
        return soonest.reason.maybe_sooner

    def found_with(*rates: float) -> Findings:
        settings = {"sweep": {"learning_rates": rates}}
        return quiet(synthetic_study, lr_exponent=0.0, learning_rates=rates, max_extensions=0, settings=settings)

    assert maybe_sooner(found_with(7.5e-4, 1.5e-3, 3e-3)) == ()
    assert 64 in maybe_sooner(found_with(7.5e-4, 1.5e-3))


def test_a_faster_size_that_costs_more_is_named_and_not_recommended(synthetic_study: Study) -> None:
    found = quiet(synthetic_study, batch_curvature=0.02, peak_speed=60_000.0, half_speed_batch=60.0)
    assert found.recommended is not None
    assert found.recommended.layout.global_batch_size == 16
    assert isinstance(found.recommended.reason, CostsMore)
    assert found.recommended.reason.other.global_batch_size > 16
    assert {item.goal for item in found.recommendations} == {"quality", "fastest", "soonest", "cheapest", "largest"}


def test_without_a_slope_costs_are_losses(synthetic_study: Study) -> None:
    found = assemble(*synthetic_study(batch_curvature=0.0005, unit="samples", token_budget=6400))
    assert found.slope is None
    assert all(cost.tokens is None and not cost.shown for cost in found.costs if cost.by is not None)
    assert "soonest" not in {item.goal for item in found.recommendations}
    with pytest.raises(InputError, match="slope of the loss"):
        recommend_for(found, Objective("soonest"))


@pytest.mark.parametrize("goal", ["quality", "fastest", "soonest", "cheapest", "largest"])
def test_a_plan_serves_the_objective_of_the_report(findings: Findings, goal: Goal) -> None:
    wanted = next(item for item in findings.recommendations if item.goal == goal)
    plan = make_plan(findings, objective=Objective(goal))
    assert plan.batch_configuration.layout == wanted.layout
    assert plan.batch_configuration.learning_rate == wanted.learning_rate
    assert plan.provenance["global_batch_size"].source.endswith(describe_reason(wanted, Unit.TOKENS))


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
