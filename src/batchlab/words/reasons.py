"""Why a batch size is recommended, and what each recommendation is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from batchlab.analysis.values import (
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
from batchlab.core.format import format_duration, format_loss, format_plural
from batchlab.words.phrases import format_seed_count

GOALS: Mapping[Goal, str] = {
    "quality": "Lowest loss",
    "fastest": "Fastest of the statistically tied",
    "soonest": "Soonest to the same loss",
    "cheapest": "Least compute to the same loss",
    "largest": "Largest of the statistically tied",
}


def describe_reason(reason: Reason) -> str:
    """Why this size, as a clause without a full stop."""
    match reason:
        case LowestLoss(loss, seeds, confirmed):
            return f"lowest mean validation loss, {format_loss(loss)} ({format_seed_count(seeds, confirmed)})"
        case SpeedUnknown():
            return "lowest mean validation loss; speed was not measured"
        case OnlyCandidate(noise_measured=True):
            return "lowest mean validation loss, and no other batch size is statistically tied with it"
        case OnlyCandidate():
            return "lowest validation loss; noise was not measured, so no other batch size is considered"
        case Fastest():
            return _fastest(reason)
        case Largest(tied, grad_accum_steps):
            steps = f"{grad_accum_steps:,} gradient accumulation steps"
            how = f"with {steps}" if grad_accum_steps > 1 else "without gradient accumulation"
            return f"largest of {_tied(tied)}, {how}; the most devices can share a step"
        case ReachesLoss():
            return _reaches(reason)
    assert_never(reason)


def _tied(count: int) -> str:
    return format_plural(count, "statistically tied batch size")


def _fastest(reason: Fastest) -> str:
    text = f"fastest of {_tied(reason.tied)}"
    if reason.loss_difference is None:
        return text
    side = "above" if reason.loss_difference >= 0 else "below"
    difference = format_loss(abs(reason.loss_difference))
    return f"{text}; its loss is {difference} {side} that of batch {reason.best_batch_size:,} (n = {reason.n})"


def _reaches(reason: ReachesLoss) -> str:
    which = ", which every statistically tied size reaches," if reason.highest_of_tied else ""
    share = f"{100 * reason.cost.budget_share:.0f} %"
    text = f"reaches a loss of {format_loss(reason.loss)}{which} after {share} of the budget"
    if reason.cost.seconds is not None:
        text += f", {format_duration(reason.cost.seconds)} at its measured speed"
    if reason.runner_up is not None:
        text += f"; batch {reason.runner_up.batch_size:,} takes {_cost(reason.runner_up)}"
    return text


def _cost(cost: CostToLoss) -> str:
    return f"{100 * cost.budget_share:.0f} %" if cost.seconds is None else format_duration(cost.seconds)
