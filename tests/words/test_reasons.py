from __future__ import annotations

from typing import get_args

import pytest

from batchlab.analysis.verdict import (
    CostToLoss,
    Fastest,
    Goal,
    Largest,
    LowestLoss,
    OnlyCandidate,
    ReachesLoss,
    Reason,
    SpeedUnknown,
)
from batchlab.words.reasons import GOALS, describe_reason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (LowestLoss(2.4071, 3, confirmed=False), "lowest mean validation loss, 2.407 (3 seeds)"),
        (LowestLoss(2.4071, 2, confirmed=True), "lowest mean validation loss, 2.407 (2 confirmation seeds)"),
        (SpeedUnknown(), "lowest mean validation loss; speed was not measured"),
        (
            Fastest(5, 0.0042, 16, 3),
            "fastest of 5 statistically tied batch sizes; its loss is 0.0042 above that of batch 16 (n = 3)",
        ),
        (Fastest(2, None, 16, 3), "fastest of 2 statistically tied batch sizes"),
        (
            OnlyCandidate(noise_measured=True),
            "lowest mean validation loss, and no other batch size is statistically tied with it",
        ),
        (
            OnlyCandidate(noise_measured=False),
            "lowest validation loss; noise was not measured, so no other batch size is considered",
        ),
        (
            Largest(3, 2),
            "largest of 3 statistically tied batch sizes, with 2 gradient accumulation steps; "
            "the most devices can share a step",
        ),
        (
            ReachesLoss(2.43, False, CostToLoss(64, 0.8, 5.0), CostToLoss(32, 0.7, 200.0)),
            "reaches a loss of 2.430 after 80 % of the budget, 5 s at its measured speed; batch 32 takes 3 min 20 s",
        ),
        (
            ReachesLoss(2.43, True, CostToLoss(8, 0.5, None), CostToLoss(16, 0.6, None)),
            "reaches a loss of 2.430, which every statistically tied size reaches, after 50 % of the budget; "
            "batch 16 takes 60 %",
        ),
    ],
)
def test_a_reason_is_one_clause_with_its_numbers(reason: Reason, text: str) -> None:
    assert describe_reason(reason) == text


def test_every_goal_has_a_name() -> None:
    assert set(GOALS) == set(get_args(Goal))
