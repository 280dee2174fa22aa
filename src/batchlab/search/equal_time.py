"""Runs that all train for the same time, instead of on the same tokens.

A batch size that is faster sees more tokens. Its run ends after the whole steps that fit into the time at the speed
measured alone on the device, and its schedule decays at that end. The speed is measured once and its tokens are
decided once, so that no run depends on how fast another one happens to be.
"""

from __future__ import annotations

import math

from batchlab.core.errors import InputError
from batchlab.core.format import format_duration
from batchlab.search.budget import (
    RESERVE,
    SweepDesign,
    speed_near,
    sweep_cost,
    token_budget_of,
)
from batchlab.storage.decisions import BudgetDecision, SizeBudget


def equal_time_budget(run_seconds: float, sweep: SweepDesign) -> BudgetDecision:
    """The plan for runs of `run_seconds` of training, without evaluations and start-up.

    A run falls short of the time by less than one step, 2 % at the fewest steps that are judged. A size without a
    measured speed, as one that runs out of memory, counts as fast as the nearest measured one. InputError where no size
    gets enough steps to be judged.
    """
    least = sweep.steps_to_judge
    speeds = {size: speed_near(size, sweep.tokens_per_second) for size in sweep.sizes}
    steps = {
        size: math.floor(round(speed * run_seconds / (size * sweep.sequence_length), 6))
        for size, speed in speeds.items()
    }
    undertrained = tuple(size for size in sweep.sizes if steps[size] < least)
    if len(undertrained) == len(sweep.sizes):
        needed = {size: least * size * sweep.sequence_length / speeds[size] for size in sweep.sizes}
        first = min(needed, key=lambda size: (needed[size], size))
        raise InputError(
            f"--run-time {format_duration(run_seconds)} is {steps[first]:,} steps at batch {first:,} and too short at "
            f"every other size: under {least} steps none is judged. Give at least {_seconds(needed[first])} for that "
            f"size, {_seconds(max(needed.values()))} for all."
        )
    by_size = {size: _of_size(size, max(1, steps[size]), speeds[size], sweep) for size in sweep.sizes}
    longest = max(by_size.values(), key=lambda one: one.token_budget)
    cost = sweep_cost(sweep)
    runs = cost.runs + (0.5 if len(sweep.sizes) > 1 else 0.0)  # and one of half the time, for the slope
    return BudgetDecision(
        token_budget=longest.token_budget,
        evaluation_interval=longest.evaluation_interval,
        run_seconds=run_seconds,
        by_size=by_size,
        adaptive=sweep.adaptive,
        runs_planned=cost.runs,
        runs_at_most=cost.runs_at_most,
        workers=sweep.workers,
        seconds_planned=runs * run_seconds / (1 - RESERVE) / sweep.concurrency_gain,
        steps_of_largest=max(1, steps[max(sweep.sizes)]),
        steps_to_judge=least,
        undertrained=undertrained,
    )


def _seconds(seconds: float) -> str:
    """Rounded up, as --run-time takes it."""
    digits = max(0, 2 - math.floor(math.log10(seconds)))
    return f"{math.ceil(round(seconds * 10**digits, 6)) / 10**digits:g}s"


def _of_size(size: int, steps: int, speed: float, sweep: SweepDesign) -> SizeBudget:
    tokens, interval = token_budget_of(
        steps * size * sweep.sequence_length, (size,), sweep.sequence_length, sweep.points
    )
    return SizeBudget(tokens_per_second=speed, token_budget=tokens, evaluation_interval=interval)
