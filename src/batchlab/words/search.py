"""What a sweep will cost, what it was given, and why its search stopped."""

from __future__ import annotations

from typing import assert_never

from batchlab.core.batch import Unit
from batchlab.core.format import (
    format_bytes,
    format_count,
    format_duration,
    format_flops,
    format_list,
    format_plural,
)
from batchlab.search.cost import Cost
from batchlab.storage.decisions import BudgetDecision, GainBound, SearchStop, StopReason


def describe_cost(cost: Cost) -> str:
    """`28 runs × 51.2M tokens, and 1 of half that length, …, = 1.46B tokens, about …`."""
    text, unit = format_plural(cost.runs, "run"), cost.unit.value
    if cost.run_seconds is not None:
        text += f" × {format_duration(cost.run_seconds)} of training"
    elif cost.tokens is not None:
        text += f" × {format_count(cost.tokens)} {unit}"
    if cost.half_budget:
        text += ", and 1 of half that length, which tells what a higher loss costs"
    if cost.tokens is not None and cost.flops is not None:
        text += "," if cost.half_budget else ""
        text += (
            f" = {format_count(cost.tokens * (cost.runs + cost.half_budget / 2))} {unit}, "
            f"about {format_flops(cost.flops)} (6 × parameters × {unit})"
        )
    if cost.state_bytes is None:
        return f"{text}; the number of parameters is not known"
    return f"{text}; weights, gradients and optimizer state of one run take {format_bytes(cost.state_bytes)}"


def describe_budget(budget: BudgetDecision, unit: Unit) -> str:
    """`28 runs × 4,096 samples, about 24 s; …`."""
    runs = format_plural(budget.runs_planned, "run")
    text = f"{'at most ' if budget.adaptive else ''}{runs} × {_each(budget, unit)}"
    if budget.seconds_planned is not None:
        text += f", about {format_duration(budget.seconds_planned)}"
        text += f" with {budget.workers} at a time" if budget.workers > 1 else ""
    if budget.runs_at_most > budget.runs_planned:
        more = budget.runs_at_most - budget.runs_planned
        text += f" (at most {more} more, where a best learning rate lies at the end of the grid)"
    text += f"; the largest batch size gets {budget.steps_of_largest:,} steps"
    if budget.undertrained:
        sizes = format_list(sorted(budget.undertrained))
        text += f"; fewer than {budget.steps_to_judge}, too few to be judged: batch {sizes}"
    return text


def _each(budget: BudgetDecision, unit: Unit) -> str:
    """`4,096 samples`, or `5 min (1.2M to 3.4M tokens at the measured speeds)`."""
    if budget.run_seconds is None:
        return f"{format_count(budget.token_budget)} {unit.value}"
    tokens = sorted(size.token_budget for size in budget.by_size.values())
    between = " to ".join(dict.fromkeys(format_count(each) for each in (tokens[0], tokens[-1])))
    return f"{format_duration(budget.run_seconds)} ({between} {unit.value} at the measured speeds)"


def stop_reason(stop: SearchStop) -> str:
    """Why no further cell is tried, to follow `because`."""
    match stop.reason:
        case StopReason.LITTLE_TO_GAIN:
            return f"another run is expected to gain {_gain(stop)}, less than {_least_gain(stop)}"
        case StopReason.RUNS_SPENT:
            return _at_budget(stop)
        case StopReason.NO_CELL_LEFT:
            return "every cell that is left ran out of memory, is undertrained or lies above a divergence"
        case StopReason.NO_FINITE_LOSS:
            return f"none of {stop.runs} runs has a finite loss"
        case StopReason.EQUAL_LOSSES:
            return f"all {stop.finite_runs} losses are equal, so there is nothing to choose by"
        case _:
            assert_never(stop.reason)


def _at_budget(stop: SearchStop) -> str:
    """Whether the budget ended before or after the search had what it needs."""
    text = f"all {stop.runs} runs of the budget that are not reserved for seeds are spent"
    if stop.expected_gain_percent is None or stop.least_gain_percent is None:
        return text
    if stop.expected_gain_percent >= stop.least_gain_percent:
        return f"{text}, though another is expected to gain {_gain(stop)}, more than {_least_gain(stop)}"
    if not stop.enclosed:
        return f"{text}, though the best cell is not enclosed by others yet"
    return f"{text}; another is expected to gain {_gain(stop)}, less than {_least_gain(stop)}"


def _gain(stop: SearchStop) -> str:
    return f"{stop.expected_gain_percent or 0.0:.2g} % of the loss"


def _least_gain(stop: SearchStop) -> str:
    least = f"the {stop.least_gain_percent or 0.0:.2g} %"
    match stop.bound:
        case GainBound.MEASURED_NOISE:
            runs = format_plural(stop.repeated_runs, "run")
            return f"{least} by which seeds differ ({runs}, and an assumed value that counts as one degree of freedom)"
        case GainBound.ASSUMED_NOISE:
            return f"{least} by which seeds are assumed to differ"
        case GainBound.REQUESTED | None:
            return f"{least} that was asked for"
        case _:
            assert_never(stop.bound)
