"""What to train with, out of what was measured: nothing is extrapolated here.

Not rejected is not equal. The batch size with the lowest loss is recommended, unless another one is shown, with 95 %
confidence, to cost no more than `sweep.tolerance` in extra tokens and reaches the same loss sooner. Of several such
sizes the soonest is recommended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import BatchRow, SurfaceFinding, TokensAt
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
    Reason,
    Recommendation,
    Soonest,
    SpeedUnknown,
    Unresolved,
    WithinTolerance,
)
from batchlab.core.errors import InputError
from batchlab.core.experiment import Experiment
from batchlab.core.format import format_list, format_loss

TWICE = 1.0
"""Extra tokens, as a share of the budget, beyond which no size is called soonest: the slope was measured between half
the budget and all of it, and says little of budgets beyond twice it."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a plan is for. `target_loss` of "soonest" and "cheapest": None is the loss of the best size."""

    goal: Goal
    target_loss: float | None = None


def recommend(
    surface: SurfaceFinding | None,
    costs: Sequence[Cost],
    experiment: Experiment,
    tokens_at: TokensAt,
    runs: int,
    run_seconds: float | None = None,
) -> tuple[Recommendation | None, tuple[Recommendation, ...]]:
    """(what to train with, one recommendation per goal). None and empty when no batch size could be judged.

    `runs`: of the whole sweep, also those at warm-ups that are not the best of their batch size. Each recommendation
    has its cost against the best cell, with its interval. "soonest" needs the speed of the sizes and the slope of the
    loss against tokens. At equal time (`run_seconds`), the lowest loss is what is recommended, because no size is
    sooner; which needs the fewest tokens was not measured.
    """
    if surface is None or surface.best is None or tokens_at(surface.best.global_batch_size) is None:
        return None, ()
    choice = _Choice(surface, surface.best, costs, experiment, tokens_at, runs)
    if run_seconds is not None:
        chosen = choice.at_equal_time(run_seconds)
        return chosen, (choice.quality(), chosen, choice.largest())
    speed = choice.fastest()
    return speed, tuple(
        made for made in (choice.quality(), speed, choice.soonest(), choice.cheapest(), choice.largest()) if made
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Chooses a size per goal."""

    surface: SurfaceFinding
    best: BatchRow
    costs: Sequence[Cost]
    experiment: Experiment
    tokens_at: TokensAt
    runs: int

    @property
    def _tolerance(self) -> float:
        return self.experiment.sweep.tolerance

    def quality(self) -> Recommendation:
        loss = self.best.val_loss
        confirmed = bool(self.surface.confirmation_seeds)
        reason = LowestLoss(loss.value if loss else math.nan, loss.n if loss else 0, confirmed)
        return self._made("quality", self.best.global_batch_size, reason)

    def at_equal_time(self, seconds: float) -> Recommendation:
        reason = BestAtEqualTime(seconds) if self.surface.noise_sd is not None else NotTested(self.runs)
        return self._made("fastest", self.best.global_batch_size, reason)

    def fastest(self) -> Recommendation:
        """The soonest of the sizes shown to cost no more than the tolerance, the best among them."""
        best = self.best.global_batch_size
        if all(cost.time_per_token is None for cost in self.costs):
            return self._made("fastest", best, SpeedUnknown())
        if self.surface.noise_sd is None:
            return self._made("fastest", best, NotTested(self.runs))
        shown = [(time, cost) for cost in self.costs if cost.shown and (time := _time(cost)) is not None]
        if shown:
            _, chosen = min(shown, key=lambda item: (item[0], item[1].global_batch_size))
            if chosen.global_batch_size != best:
                return self._made("fastest", chosen.global_batch_size, WithinTolerance(self._tolerance, best))
        return self._made("fastest", best, self._why_the_best())

    def _why_the_best(self) -> Reason:
        tied = {row.global_batch_size for row in self.surface.tied}
        sooner = [
            (time, cost)
            for cost in self.costs
            if not cost.shown and (time := _time(cost)) is not None and time < 1
            if cost.tokens is not None or cost.global_batch_size in tied
        ]
        if not sooner:
            return BestIsSoonest()
        _, other = min(sooner, key=lambda item: (item[0], item[1].global_batch_size))
        low = other.tokens.low if other.tokens else None
        if low is not None and low > self._tolerance:
            return CostsMore(self._tolerance, other)
        return Unresolved(self._tolerance, other)

    def soonest(self) -> Recommendation | None:
        """The least time to the best size's loss by the estimates; None where the speed or the slope is unknown.

        A search for the lowest loss does not tune the sizes far from it, and a size costs the more tokens the worse its
        learning rate is. Sizes that this may hide are named with it.
        """
        timed = [
            (cost.time, cost)
            for cost in self.costs
            if cost.time is not None and cost.tokens is not None and cost.tokens.value <= TWICE
        ]
        if not timed:
            return None
        _, chosen = min(timed, key=lambda item: (item[0], item[1].global_batch_size))
        hidden = self._maybe_sooner(chosen)
        return self._made("soonest", chosen.global_batch_size, Soonest(self.best.global_batch_size, hidden))

    def _maybe_sooner(self, chosen: Cost) -> tuple[int, ...]:
        """Sizes whose learning rate is not enclosed and that would be sooner than `chosen` if they cost no tokens.

        A size without a speed is taken to be faster than smaller ones. Undertrained sizes are not judged.
        """
        rows = {row.global_batch_size: row for row in self.surface.rows}
        per_token = {cost.global_batch_size: cost.time_per_token for cost in self.costs}

        def may(size: int) -> bool:
            row, time = rows.get(size), per_token.get(size)
            if row is not None and (row.undertrained or _enclosed(row)):
                return False
            if time is None or chosen.time is None:
                return size > chosen.global_batch_size
            return time < chosen.time

        return tuple(size for size in self.experiment.batch.global_batch_sizes if may(size))

    def cheapest(self) -> Recommendation:
        return self._made("cheapest", self.best.global_batch_size, FewestTokens())

    def largest(self) -> Recommendation:
        chosen = max((cost.global_batch_size for cost in self.costs if cost.shown), default=self.best.global_batch_size)
        tied = {row.global_batch_size for row in self.surface.tied}
        larger = [cost for cost in self.costs if cost.global_batch_size in tied and cost.global_batch_size > chosen]
        beyond = max(larger, key=lambda cost: cost.global_batch_size, default=None)
        accum = self._row(chosen).layout.grad_accum_steps
        return self._made("largest", chosen, Largest(self._tolerance, accum, beyond))

    def _row(self, size: int) -> BatchRow:
        return next(row for row in self.surface.rows if row.global_batch_size == size)

    def _made(self, goal: Goal, size: int, reason: Reason) -> Recommendation:
        cost = next((cost for cost in self.costs if cost.global_batch_size == size), None)
        return _made(goal, self._row(size), self.experiment, self.tokens_at(size) or 0, reason, cost)


def _enclosed(row: BatchRow) -> bool:
    """Whether learning rates on both sides of the best one were tried."""
    rates = [cell.learning_rate for cell in row.cells]
    return row.best is not None and rates[0] < row.best.learning_rate < rates[-1]


def _time(cost: Cost) -> float | None:
    """Time to the same loss; where the slope is unknown, time to the same tokens."""
    return cost.time_per_token if cost.tokens is None else cost.time


def recommend_for(found: Findings, objective: Objective) -> Recommendation:
    """The size that serves `objective`; InputError where no measurement answers that."""
    goal, target = objective.goal, objective.target_loss
    if target is None:
        for item in found.recommendations:
            if item.goal == goal:
                return item
        if found.run_seconds is not None:
            raise InputError(
                "Every batch size had the same time (--run-time), so the lowest loss is also the soonest; which size "
                f"is {goal} was not compared. Give another objective: "
                f"{format_list([item.goal for item in found.recommendations])}."
            )
        raise InputError(
            f"This study cannot tell which batch size is {goal}: that takes the speed of the batch sizes and the slope "
            "of the loss against tokens. Give --target-loss, or another objective: "
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
    reason = _reaches_loss(reached, target, goal, found)
    row = reached[0].row
    return _made(goal, row, found.experiment, found.tokens_at(row.global_batch_size) or found.token_budget, reason)


def _made(
    goal: Goal, row: BatchRow, experiment: Experiment, token_budget: int, reason: Reason, cost: Cost | None = None
) -> Recommendation:
    rate = row.best.learning_rate if row.best else math.nan  # recommended rows always have a best cell
    schedule = experiment.schedule_with(row.warmup_fraction)
    warmup = schedule.warmup_tokens(token_budget, row.layout.tokens_per_step)
    return Recommendation(goal, row.layout, rate, warmup, reason, cost)


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


def _reaches_loss(reached: Sequence[_Reached], loss: float, goal: OfALoss, found: Findings) -> ReachesLoss:
    costs = []
    for one in reached[:2]:
        size, seconds = one.row.global_batch_size, one.cost if goal == "soonest" else None
        costs.append(CostToLoss(size, one.tokens / (found.tokens_at(size) or one.tokens), seconds))
    return ReachesLoss(loss, costs[0], costs[1] if len(costs) > 1 else None)


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
