"""What a sweep will cost, and why its search stopped, as a person reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchlab.core.batch import Unit
from batchlab.search.cost import Cost
from batchlab.storage.decisions import BudgetDecision, GainBound, SearchStop, SizeBudget, StopReason
from batchlab.words.search import describe_budget, describe_cost, stop_reason

BUDGET = BudgetDecision(
    token_budget=327_680,
    evaluation_interval=40_960,
    adaptive=False,
    runs_planned=28,
    runs_at_most=28,
    workers=1,
    seconds_planned=None,
    steps_of_largest=80,
    steps_to_judge=50,
    undertrained=(),
)


def test_the_cost_of_a_sweep() -> None:
    flops = 6.0 * 22_696_448 * 327_680_000 * 11
    cost = Cost(runs=11, tokens=327_680_000, flops=flops, state_bytes=16 * 22_696_448, unit=Unit.TOKENS)
    assert describe_cost(cost) == (
        "11 runs × 328M tokens = 3.6B tokens, about 491 petaFLOP (6 × parameters × tokens); "
        "weights, gradients and optimizer state of one run take 0.34 GiB"
    )


def test_the_run_of_half_the_budget_is_part_of_the_cost() -> None:
    cost = Cost(runs=10, tokens=1000, flops=6e9, state_bytes=2**30, unit=Unit.TOKENS, half_budget=True)
    assert describe_cost(cost).startswith(
        "10 runs × 1,000 tokens, and 1 of half that length, which tells what a higher loss costs, = 10,500 tokens"
    )
    cost = replace(cost, tokens=None, flops=None, run_seconds=300.0)
    assert describe_cost(cost).startswith("10 runs × 5 min of training, and 1 of half that length, which")


def test_runs_of_equal_time_are_told_with_their_tokens() -> None:
    sizes = {
        4: SizeBudget(tokens_per_second=1e3, token_budget=300_000, evaluation_interval=1),
        64: SizeBudget(tokens_per_second=4e3, token_budget=1_200_000, evaluation_interval=1),
    }
    budget = BUDGET.model_copy(update={"run_seconds": 300.0, "by_size": sizes})
    assert describe_budget(budget, Unit.TOKENS).startswith(
        "28 runs × 5 min (300k to 1.2M tokens at the measured speeds); "
    )


def test_without_a_token_budget_only_runs_and_memory_are_known() -> None:
    cost = Cost(runs=1, tokens=None, flops=None, state_bytes=2**32, unit=Unit.TOKENS)
    assert describe_cost(cost) == "1 run; weights, gradients and optimizer state of one run take 4.00 GiB"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "28 runs × 328k samples; the largest batch size gets 80 steps"),
        ({"seconds_planned": 24.0}, "28 runs × 328k samples, about 24 s; the largest"),
        ({"seconds_planned": 24.0, "workers": 4}, "about 24 s with 4 at a time; "),
        ({"runs_at_most": 43}, "(at most 15 more, where a best learning rate lies at the end of the grid); "),
        ({"adaptive": True}, "at most 28 runs × 328k samples; "),
        ({"undertrained": (64, 32)}, "; fewer than 50, too few to be judged: batch 32 and 64"),
    ],
)
def test_the_budget_of_a_sweep(changes: dict[str, Any], says: str) -> None:
    text = describe_budget(BUDGET.model_copy(update=changes), Unit.SAMPLES)
    assert says in text
    assert text.startswith("at most") is bool(changes.get("adaptive"))
    assert ("about" in text) is ("seconds_planned" in changes)


def stop(reason: StopReason, **more: Any) -> SearchStop:
    return SearchStop(reason=reason, runs=12, finite_runs=11, **more)


SPENT = "all 12 runs of the budget that are not reserved for seeds are spent"


@pytest.mark.parametrize(
    ("stopped", "says"),
    [
        (
            stop(
                StopReason.LITTLE_TO_GAIN,
                expected_gain_percent=0.012,
                least_gain_percent=0.05,
                bound=GainBound.MEASURED_NOISE,
                repeated_runs=2,
            ),
            "another run is expected to gain 0.012 % of the loss, less than the 0.05 % by which seeds differ (2 runs, "
            "and an assumed value that counts as one degree of freedom)",
        ),
        (
            stop(
                StopReason.LITTLE_TO_GAIN,
                expected_gain_percent=0.012,
                least_gain_percent=0.05,
                bound=GainBound.ASSUMED_NOISE,
            ),
            "another run is expected to gain 0.012 % of the loss, less than the 0.05 % by which seeds are assumed to "
            "differ",
        ),
        (stop(StopReason.RUNS_SPENT), SPENT),
        (
            stop(
                StopReason.RUNS_SPENT,
                expected_gain_percent=0.3,
                least_gain_percent=0.1,
                bound=GainBound.REQUESTED,
                enclosed=True,
            ),
            f"{SPENT}, though another is expected to gain 0.3 % of the loss, more than the 0.1 % that was asked for",
        ),
        (
            stop(StopReason.RUNS_SPENT, expected_gain_percent=0.01, least_gain_percent=0.1, enclosed=False),
            f"{SPENT}, though the best cell is not enclosed by others yet",
        ),
        (
            stop(
                StopReason.RUNS_SPENT,
                expected_gain_percent=0.01,
                least_gain_percent=0.1,
                bound=GainBound.ASSUMED_NOISE,
                enclosed=True,
            ),
            f"{SPENT}; another is expected to gain 0.01 % of the loss, less than the 0.1 % by which seeds are assumed "
            "to differ",
        ),
        (
            stop(StopReason.NO_CELL_LEFT),
            "every cell that is left ran out of memory, is undertrained or lies above a divergence",
        ),
        (stop(StopReason.NO_FINITE_LOSS), "none of 12 runs has a finite loss"),
        (stop(StopReason.EQUAL_LOSSES), "all 11 losses are equal, so there is nothing to choose by"),
    ],
)
def test_why_a_search_stopped(stopped: SearchStop, says: str) -> None:
    assert stop_reason(stopped) == says
