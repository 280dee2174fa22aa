from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.values import Comparing, Interval
from batchlab.analysis.verdict import (
    BestIsSoonest,
    Cost,
    CostsMore,
    CostToLoss,
    FewestTokens,
    Goal,
    Largest,
    LowestLoss,
    NotTested,
    ReachesLoss,
    Reason,
    Recommendation,
    Soonest,
    SpeedUnknown,
    Unresolved,
    WithinTolerance,
)
from batchlab.core.batch import BatchLayout, Unit
from batchlab.words.reasons import GOALS, describe_reason, soonest_beside

COST = Cost(32, 1e-3, Interval(0.01, 0.004, 0.016, 4), Interval(0.06, 0.02, 0.09, 4), Comparing.PAIRED, 0.59, False, 12)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (LowestLoss(2.4071, 3, confirmed=False), "lowest validation loss, 2.407 (3 seeds)"),
        (LowestLoss(2.4071, 2, confirmed=True), "lowest validation loss, 2.407 (2 confirmation seeds)"),
        (NotTested(12), "lowest of 12 runs, not tested: no seed was repeated"),
        (SpeedUnknown(), "lowest validation loss; speed was not measured"),
        (BestIsSoonest(), "lowest validation loss, and no other batch size is expected to reach it sooner"),
        (
            WithinTolerance(0.1, 16),
            "costs 6 % [2, 9] more tokens for 41 % less time per token: 37 % sooner than batch 16, shown to be at "
            "most 10 %",
        ),
        (
            Unresolved(0.03, COST),
            "lowest validation loss; batch 32 would be 37 % sooner at 6 % [2, 9] more tokens: not resolved whether "
            "that is within 3 %; 12 more seeds at both would, if the difference is the one measured",
        ),
        (
            CostsMore(0.01, COST),
            "lowest validation loss; batch 32 would be 37 % sooner but costs 6 % [2, 9] more tokens, above the "
            "tolerance of 1 %",
        ),
        (Soonest(16), "costs 6 % [2, 9] more tokens for 41 % less time per token: 37 % sooner than batch 16"),
        (Soonest(32), "the batch size with the lowest loss is also the soonest, by the estimates"),
        (
            Soonest(32, (64, 128)),
            "the batch size with the lowest loss is also the soonest, by the estimates; batch 64 and 128 may be sooner "
            "still, at learning rates that were not tried",
        ),
        (FewestTokens(), "every other batch size needs more tokens to the same loss, by the estimates"),
        (
            Largest(0.03, 2, COST),
            "largest shown to cost at most 3 %, with 2 gradient accumulation steps; the most devices can share a step. "
            "Batch 32 is statistically tied, at 6 % [2, 9] more tokens, and not shown",
        ),
        (
            ReachesLoss(2.43, CostToLoss(64, 0.8, 5.0), CostToLoss(32, 0.7, 200.0)),
            "reaches a loss of 2.430 after 80 % of the budget, 5 s at its measured speed; batch 32 takes 3 min 20 s",
        ),
        (
            ReachesLoss(2.43, CostToLoss(8, 0.5, None), CostToLoss(16, 0.6, None)),
            "reaches a loss of 2.430 after 50 % of the budget; batch 16 takes 60 %",
        ),
    ],
)
def test_a_reason_is_one_clause_with_its_numbers(reason: Reason, text: str) -> None:
    layout = BatchLayout(global_batch_size=32, micro_batch_size=32)
    assert describe_reason(Recommendation("fastest", layout, 1e-3, 0.0, reason, COST), Unit.TOKENS) == text


def test_every_goal_has_a_name() -> None:
    assert set(GOALS) == set(get_args(Goal))


def test_a_size_that_is_much_sooner_is_named_beside_the_recommended_one(synthetic_study: Callable[..., Any]) -> None:
    """Batch 32 is shown; batch 64 costs more, and is 20 % sooner still."""
    found = assemble(
        *synthetic_study(
            learning_rates=(7.5e-4, 1.5e-3, 3e-3),
            lr_exponent=0.0,
            seeds=5,
            noise_sd=0.0001,
            fall=0.1,
            batch_curvature=0.002,
            half_speed_batch=60.0,
            settings={"sweep": {"learning_rates": (7.5e-4, 1.5e-3, 3e-3), "seeds": 3, "confirm": 2}},
        )
    )
    assert found.recommended is not None
    assert found.recommended.layout.global_batch_size == 32
    soonest = next(item for item in found.recommendations if item.goal == "soonest")
    assert soonest_beside(found, already_named=None).startswith("; soonest: batch 64, ")
    assert soonest_beside(found, already_named=soonest.cost) == ""
