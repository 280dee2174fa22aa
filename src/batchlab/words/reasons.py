"""Why a batch size is recommended, and what each recommendation is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from batchlab.analysis.findings import Findings
from batchlab.analysis.verdict import (
    BestAtEqualTime,
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
    Recommendation,
    Soonest,
    SpeedUnknown,
    Unresolved,
    WithinTolerance,
)
from batchlab.core.batch import Unit
from batchlab.core.format import format_duration, format_list, format_loss, format_percent, format_plural
from batchlab.words.costs import describe_cost, describe_more_seeds, describe_time, describe_trade, shared_term
from batchlab.words.phrases import format_seed_count

WORTH_NAMING = 0.1
"""Share of the time by which another size has to be sooner to be named beside the recommended one."""

GOALS: Mapping[Goal, str] = {
    "quality": "Lowest loss",
    "fastest": "Recommended",
    "soonest": "Soonest to the same loss",
    "cheapest": "Least data to the same loss",
    "largest": "Largest within the tolerance",
}


def describe_reason(recommendation: Recommendation, unit: Unit) -> str:
    """Why this size and what it costs, as a clause without a full stop."""
    reason, cost = recommendation.reason, recommendation.cost
    match reason:
        case LowestLoss(loss, seeds, confirmed):
            return f"lowest validation loss, {format_loss(loss)} ({format_seed_count(seeds, confirmed)})"
        case NotTested(runs):
            return f"lowest of {format_plural(runs, 'run')}, not tested: no seed was repeated"
        case SpeedUnknown():
            return "lowest validation loss; speed was not measured"
        case BestIsSoonest():
            return "lowest validation loss, and no other batch size is expected to reach it sooner"
        case BestAtEqualTime(seconds):
            return f"lowest validation loss after {format_duration(seconds)} of training at every batch size"
        case WithinTolerance(tolerance, best):
            return f"{_costs(cost, unit)} than batch {best:,}, shown to be at most {format_percent(tolerance)}"
        case Unresolved(tolerance, other):
            return f"lowest validation loss; {describe_open(other, tolerance, unit)}"
        case CostsMore(tolerance, other):
            sooner = f"batch {other.global_batch_size:,} would be {describe_time(other) or 'faster'}"
            costs = f"costs {describe_cost(other, unit)}, above the tolerance of {format_percent(tolerance)}"
            return f"lowest validation loss; {sooner} but {costs}"
        case Soonest(best, maybe_sooner):
            if recommendation.layout.global_batch_size == best:
                text = "the batch size with the lowest loss is also the soonest, by the estimates"
            else:
                text = f"{_costs(cost, unit)} than batch {best:,}"
            return text + _maybe_sooner(maybe_sooner)
        case FewestTokens():
            return f"every other batch size needs more {unit.value} to the same loss, by the estimates"
        case Largest():
            return _largest(reason, unit)
        case ReachesLoss():
            return _reaches(reason)
    assert_never(reason)


def _costs(cost: Cost | None, unit: Unit) -> str:
    return f"costs {describe_trade(cost, unit)}" if cost else ""


def describe_open(other: Cost, tolerance: float, unit: Unit) -> str:
    """A size that might be better to train with, and what would settle it."""
    when = describe_time(other)
    would = f"batch {other.global_batch_size:,} would be {when}" if when else f"batch {other.global_batch_size:,}"
    at = (
        f"{would} at {describe_cost(other, unit)}"
        if when
        else f"{would} is faster and has {describe_cost(other, unit)}"
    )
    if other.tokens is None:
        return f"{at}; what that costs in {shared_term(other.shared, unit)} is unknown"
    return f"{at}: not resolved whether that is within {format_percent(tolerance)}; {describe_more_seeds(other)}"


def soonest_beside(found: Findings, already_named: Cost | None) -> str:
    """The soonest size, to follow the recommended one, where it is enough sooner to be named; else empty.

    `already_named` is the size that the text before it tells of.
    """
    chosen = found.recommended
    soonest = next((item for item in found.recommendations if item.goal == "soonest"), None)
    if chosen is None or soonest is None or soonest.cost is None or soonest.layout == chosen.layout:
        return ""
    if already_named == soonest.cost:
        return ""
    time, here = soonest.cost.time, chosen.cost.time if chosen.cost else None
    if time is None or here is None or time > (1 - WORTH_NAMING) * here:
        return ""
    size, unit = soonest.layout.global_batch_size, found.experiment.unit
    hidden = _maybe_sooner(soonest.reason.maybe_sooner) if isinstance(soonest.reason, Soonest) else ""
    return f"; soonest: batch {size:,}, {describe_trade(soonest.cost, unit)}{hidden}"


def _maybe_sooner(sizes: Sequence[int]) -> str:
    if not sizes:
        return ""
    return f"; batch {format_list(sizes)} may be sooner still, at learning rates that were not tried"


def _largest(reason: Largest, unit: Unit) -> str:
    steps = f"{reason.grad_accum_steps:,} gradient accumulation steps"
    how = f"with {steps}" if reason.grad_accum_steps > 1 else "without gradient accumulation"
    text = f"largest shown to cost at most {format_percent(reason.tolerance)}, {how}; the most devices can share a step"
    if reason.beyond is None:
        return text
    size = f"{reason.beyond.global_batch_size:,}"
    return f"{text}. Batch {size} is statistically tied, at {describe_cost(reason.beyond, unit)}, and not shown"


def _reaches(reason: ReachesLoss) -> str:
    share = f"{100 * reason.cost.budget_share:.0f} %"
    text = f"reaches a loss of {format_loss(reason.loss)} after {share} of the budget"
    if reason.cost.seconds is not None:
        text += f", {format_duration(reason.cost.seconds)} at its measured speed"
    if reason.runner_up is not None:
        text += f"; batch {reason.runner_up.batch_size:,} takes {_cost(reason.runner_up)}"
    return text


def _cost(cost: CostToLoss) -> str:
    return f"{100 * cost.budget_share:.0f} %" if cost.seconds is None else format_duration(cost.seconds)
