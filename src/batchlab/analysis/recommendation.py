"""What to train with, out of what was measured: nothing is extrapolated here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import (
    BatchRow,
    CostToLoss,
    Fastest,
    Goal,
    Largest,
    LowestLoss,
    OnlyCandidate,
    ReachesLoss,
    Reason,
    Recommendation,
    SpeedUnknown,
    SurfaceFinding,
)
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_list, format_loss


@dataclass(frozen=True, slots=True)
class Objective:
    """What a plan is for. `target_loss` of "soonest" and "cheapest": None is the highest loss of the tied sizes."""

    goal: Goal
    target_loss: float | None = None


def recommend(
    surface: SurfaceFinding | None, experiment: Experiment, token_budget: int | None
) -> tuple[Recommendation | None, tuple[Recommendation, ...]]:
    """(what to train with, one recommendation per goal). None and empty when no batch size could be judged.

    To train with: the fastest of the sizes statistically tied with the best, each at its own best learning rate.
    "soonest" and "cheapest" need evaluations along the runs of two sizes; "soonest" also needs their speed.
    """
    if surface is None or surface.best is None or token_budget is None:
        return None, ()
    warmup_tokens = experiment.schedule.warmup_fraction * token_budget
    best, tied = surface.best, surface.tied
    timed = [row for row in tied if row.tokens_per_second is not None]
    fastest = max(timed, key=lambda row: (row.tokens_per_second or 0.0, -row.global_batch_size)) if timed else best
    largest = max(tied, key=lambda row: row.global_batch_size)
    target = _highest(tied)
    only = OnlyCandidate(surface.noise_sd is not None) if len(tied) == 1 else None
    speed_reason = only or _fastest_reason(fastest, best, len(tied)) if timed else SpeedUnknown()
    largest_reason = only or Largest(len(tied), largest.layout.grad_accum_steps)
    speed = _made("fastest", fastest, warmup_tokens, speed_reason)
    return speed, (
        _made("quality", best, warmup_tokens, _lowest_loss(surface, best)),
        speed,
        *(
            _made(goal, reached[0].row, warmup_tokens, _reaches_loss(reached, target, goal, token_budget, asked=False))
            for goal in OF_A_LOSS
            if len(reached := _reached(tied, target, goal)) > 1
        ),
        _made("largest", largest, warmup_tokens, largest_reason),
    )


def recommend_for(found: Findings, objective: Objective) -> Recommendation:
    """The statistically tied size that serves `objective`; InputError where no measurement answers that."""
    goal, target = objective.goal, objective.target_loss
    if target is None:
        for item in found.recommendations:
            if item.goal == goal:
                return item
        raise InputError(
            f"This study cannot tell which batch size is {goal}: that takes evaluations along the runs of two "
            "statistically tied sizes, and their speed. Give --target-loss for a single size, or another objective: "
            f"{format_list([item.goal for item in found.recommendations])}."
        )
    if goal not in OF_A_LOSS:
        raise InputError(
            f"A target loss goes with {' or '.join(OF_A_LOSS)}; {goal} is about runs of the whole budget. Omit one of "
            "the two."
        )
    assert found.surface is not None
    assert found.token_budget
    tied = found.surface.tied
    if goal == "soonest" and all(row.tokens_per_second is None for row in tied):
        raise InputError("This study measured no speed, so the time to a loss is unknown; ask for cheapest.")
    reached = _reached(tied, target, goal)
    if not reached:
        raise InputError(
            f"No statistically tied batch size came down to a loss of {target:g}; the lowest mean along their runs is "
            f"{format_loss(_lowest(tied))}. Give a higher loss; a larger budget was not measured."
        )
    warmup_tokens = found.experiment.schedule.warmup_fraction * found.token_budget
    reason = _reaches_loss(reached, target, goal, found.token_budget, asked=True)
    return _made(goal, reached[0].row, warmup_tokens, reason)


def _made(goal: Goal, row: BatchRow, warmup_tokens: float, reason: Reason) -> Recommendation:
    rate = row.best.learning_rate if row.best else math.nan  # tied rows always have a best cell
    return Recommendation(goal, row.layout, rate, warmup_tokens, reason)


def _lowest_loss(surface: SurfaceFinding, best: BatchRow) -> LowestLoss:
    loss = best.val_loss
    return LowestLoss(loss.value if loss else math.nan, loss.n if loss else 0, bool(surface.confirmation_seeds))


def _fastest_reason(fastest: BatchRow, best: BatchRow, tied: int) -> Fastest:
    difference = None
    if fastest is not best and fastest.val_loss and best.val_loss:
        difference = fastest.val_loss.value - best.val_loss.value
    return Fastest(tied, difference, best.global_batch_size, fastest.val_loss.n if fastest.val_loss else 0)


# To a loss

OfALoss = Literal["soonest", "cheapest"]
OF_A_LOSS: tuple[OfALoss, ...] = ("soonest", "cheapest")


@dataclass(frozen=True, slots=True)
class _Reached:
    """A size whose mean evaluation curve reaches the loss; `cost` in seconds or tokens."""

    row: BatchRow
    tokens: float
    cost: float


def _reached(tied: Sequence[BatchRow], target: float, goal: OfALoss) -> list[_Reached]:
    """The sizes that reach the loss, the least cost first.

    Read from runs whose learning rate decays over the whole budget: a run planned to end at this loss would reach it
    somewhat earlier, at every size.
    """
    found = []
    for row in tied:
        tokens = _tokens_to(_curve(row), target)
        speed = row.tokens_per_second if goal == "soonest" else 1.0
        if tokens is not None and speed is not None:
            found.append(_Reached(row, tokens, tokens / speed))
    return sorted(found, key=lambda one: (one.cost, one.row.global_batch_size))


def _reaches_loss(
    reached: Sequence[_Reached], loss: float, goal: OfALoss, token_budget: int, *, asked: bool
) -> ReachesLoss:
    costs = [
        CostToLoss(one.row.global_batch_size, one.tokens / token_budget, one.cost if goal == "soonest" else None)
        for one in reached[:2]
    ]
    return ReachesLoss(loss, not asked, costs[0], costs[1] if len(costs) > 1 else None)


def _highest(tied: Sequence[BatchRow]) -> float:
    """The loss that all tied sizes end at or below."""
    return max((row.val_loss.value for row in tied if row.val_loss), default=math.nan)


def _lowest(tied: Sequence[BatchRow]) -> float:
    return min((loss for row in tied for _, loss in _curve(row)), default=math.nan)


def _curve(row: BatchRow) -> list[tuple[int, float]]:
    """(tokens, mean validation loss) along the runs of the size's best cell, where all of them were evaluated."""
    curves = [dict(run.val_curve) for run in (row.best.runs if row.best else ()) if run.val_loss is not None]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return [(tokens, sum(curve[tokens] for curve in curves) / len(curves)) for tokens in shared]


def _tokens_to(curve: Sequence[tuple[int, float]], target: float) -> float | None:
    """Where the curve first is at `target`, between two evaluations by interpolation; None where it never is."""
    before: tuple[int, float] | None = None
    for tokens, loss in curve:
        if loss <= target:
            if before is None or before[1] == loss:
                return float(tokens)
            return before[0] + (tokens - before[0]) * (before[1] - target) / (before[1] - loss)
        before = (tokens, loss)
    return None
