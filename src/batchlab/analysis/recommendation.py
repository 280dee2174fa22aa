"""What to train with, out of what was measured: nothing is extrapolated here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, Goal, Recommendation, SurfaceFinding
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_list, format_loss, format_plural
from batchlab.search.budget import format_time
from batchlab.words.phrases import format_seeds


@dataclass(frozen=True, slots=True)
class Objective:
    """What a plan is to serve. `target_loss`: of "soonest" and "cheapest"; None: the highest of those as good."""

    goal: Goal
    target_loss: float | None = None


def recommend(
    surface: SurfaceFinding | None, experiment: Experiment, token_budget: int | None
) -> tuple[Recommendation | None, tuple[Recommendation, ...]]:
    """(what to train with, one recommendation per goal). None and empty when no batch size could be judged.

    To train with: the fastest measured size of those as good as the best, each at its own best learning rate. Soonest
    and cheapest to a loss need evaluations along the runs of two sizes, soonest their speed as well.
    """
    if surface is None or surface.best is None or token_budget is None:
        return None, ()
    warmup_tokens = experiment.schedule.warmup_fraction * token_budget
    best, good = surface.best, surface.tied
    timed = [row for row in good if row.tokens_per_second is not None]
    fastest = max(timed, key=lambda row: (row.tokens_per_second or 0.0, -row.global_batch_size)) if timed else best
    largest = max(good, key=lambda row: row.global_batch_size)
    among = (
        f"of {format_plural(len(good), 'batch size')} as good as the best"
        if len(good) > 1
        else "and the only judged as good"
    )
    quality_why = f"lowest mean validation loss, {format_loss(best.val_loss.value if best.val_loss else 0.0)}"
    speed_why = f"fastest {among}" if timed else "lowest mean validation loss; speed was not measured"
    if timed and fastest is not best and fastest.val_loss and best.val_loss:
        distance = fastest.val_loss.value - best.val_loss.value
        sign = "above" if distance >= 0 else "below"
        speed_why += (
            f", {format_loss(abs(distance))} {sign} batch {best.global_batch_size:,} (n = {fastest.val_loss.n})"
        )
    passes = largest.layout.grad_accum_steps
    how = f"by {passes} accumulated micro-batches" if passes > 1 else "without accumulation"
    target = _highest(good)
    named = f"{format_loss(target)}, the highest of those as good,"
    speed = _made("fastest", fastest, warmup_tokens, speed_why)
    return speed, (
        _made("quality", best, warmup_tokens, f"{quality_why} ({format_seeds(surface, best)})"),
        speed,
        *(
            _made(goal, reached[0].row, warmup_tokens, _format_reached(reached, named, goal, token_budget))
            for goal in OF_A_LOSS
            if len(reached := _reached(good, target, goal)) > 1
        ),
        _made("largest", largest, warmup_tokens, f"largest {among}, {how}: the most devices that can share a step"),
    )


def recommend_for(found: Findings, objective: Objective) -> Recommendation:
    """The size of those as good as the best that serves `objective`; InputError where nothing measured answers that."""
    goal, target = objective.goal, objective.target_loss
    if target is None:
        for item in found.recommendations:
            if item.goal == goal:
                return item
        raise InputError(
            f"Which size is {goal} cannot be told: that needs evaluations along the runs of two sizes as good as the "
            "best, and their speed. Give --target-loss for one size, or another objective: "
            f"{format_list([item.goal for item in found.recommendations])}."
        )
    if goal not in OF_A_LOSS:
        raise InputError(
            f"A target loss goes with {' or '.join(OF_A_LOSS)}; {goal} is about runs of the whole budget. Leave one "
            "away."
        )
    assert found.surface is not None
    assert found.token_budget
    good = found.surface.tied
    if goal == "soonest" and all(row.tokens_per_second is None for row in good):
        raise InputError("No speed was measured in this study, so nothing is known of time; ask for cheapest.")
    reached = _reached(good, target, goal)
    if not reached:
        raise InputError(
            f"No run of the sizes as good as the best came down to a loss of {target:g}; the lowest mean along them is "
            f"{format_loss(_lowest(good))}. Give a loss above that; what more tokens would bring was not measured."
        )
    warmup_tokens = found.experiment.schedule.warmup_fraction * found.token_budget
    why = _format_reached(reached, format_loss(target), goal, found.token_budget)
    return _made(goal, reached[0].row, warmup_tokens, why)


def _made(goal: Goal, row: BatchRow, warmup_tokens: float, why: str) -> Recommendation:
    rate = row.best.learning_rate if row.best else math.nan  # rows that are as good always have a best cell
    return Recommendation(goal, row.layout, rate, warmup_tokens, why)


# To a loss

OfALoss = Literal["soonest", "cheapest"]
OF_A_LOSS: tuple[OfALoss, ...] = ("soonest", "cheapest")


@dataclass(frozen=True, slots=True)
class _Reached:
    """A size whose mean evaluation curve came down to the loss; `cost` in seconds or tokens."""

    row: BatchRow
    tokens: float
    cost: float


def _reached(good: Sequence[BatchRow], target: float, goal: OfALoss) -> list[_Reached]:
    """Those that came down to the loss, the least cost first.

    Seen along runs whose learning rate was still falling for the whole budget: a run planned to end there would get
    there somewhat earlier, at every size.
    """
    found = []
    for row in good:
        tokens = _tokens_to(_curve(row), target)
        speed = row.tokens_per_second if goal == "soonest" else 1.0
        if tokens is not None and speed is not None:
            found.append(_Reached(row, tokens, tokens / speed))
    return sorted(found, key=lambda one: (one.cost, one.row.global_batch_size))


def _format_reached(reached: Sequence[_Reached], loss: str, goal: OfALoss, token_budget: int) -> str:
    first = reached[0]
    why = f"down to a loss of {loss} after {100 * first.tokens / token_budget:.0f} % of the budget"
    if goal == "soonest":
        why += f", {format_time(first.cost)} at its measured speed"
    if len(reached) > 1:
        next_size = reached[1].row.global_batch_size
        after = format_time(reached[1].cost) if goal == "soonest" else f"{100 * reached[1].cost / token_budget:.0f} %"
        why += f"; batch {next_size:,} takes {after}"
    return why


def _highest(good: Sequence[BatchRow]) -> float:
    """The loss that all of those as good end at or below."""
    return max((row.val_loss.value for row in good if row.val_loss), default=math.nan)


def _lowest(good: Sequence[BatchRow]) -> float:
    return min((loss for row in good for _, loss in _curve(row)), default=math.nan)


def _curve(row: BatchRow) -> list[tuple[int, float]]:
    """(tokens, mean validation loss) along the runs of the size's best cell, where all of them were evaluated."""
    curves = [
        {evaluated.tokens: evaluated.val_loss for evaluated in run.rows if evaluated.val_loss is not None}
        for run in (row.best.runs if row.best else ())
        if run.val_loss is not None
    ]
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
