"""From time to tokens: one token budget for every run, met exactly by every batch size.

Budgets and evaluation points are multiples of the quantum, the smallest number of tokens that is a whole number of
steps of every batch size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import DEFAULT_TIME_BUDGET
from batchlab.core.format import format_duration
from batchlab.core.spec import MIN_STEPS, MIN_WARMUP_STEPS
from batchlab.search.grid import runs_at_most
from batchlab.search.repeats import Repeats
from batchlab.storage.decisions import BudgetDecision

RESERVE = 0.15
"""Share of the time kept for everything but training steps: evaluations, checkpoints, starting workers, and the last
run of a round, which has the machine to itself."""

EXPLORED = 16
"""Runs on different cells that an adaptive search is given: replays of published runs took 8 to 12."""

FEWEST = 5
"""Cells that an adaptive search tries before it spends a run on another seed: then it repeats the best one to measure
the noise, if as many cells are left."""

EXPLORED_OF_A_SIZE = 8
"""The same where there are one or two batch sizes: half doublings over four doublings of the learning rate."""

REPEATS = Repeats()


def quantum(global_batch_sizes: Sequence[int], sequence_length: int) -> int:
    """Least number of tokens that is a whole number of steps of every size: lcm(sizes) · sequence length."""
    return math.lcm(*global_batch_sizes) * sequence_length


def token_budget_of(
    requested: int, global_batch_sizes: Sequence[int], sequence_length: int, points: int
) -> tuple[int, int]:
    """(token budget, tokens between evaluations): the request rounded down to whole quanta.

    At most `points` evaluations result, the last one at the end of the run. InputError when the request is smaller than
    one quantum.
    """
    one = quantum(global_batch_sizes, sequence_length)
    if requested < one:
        largest = max(global_batch_sizes)
        if requested < largest * sequence_length:
            raise InputError(
                f"A token budget of {requested:,} is less than one step of batch {largest} "
                f"({largest * sequence_length:,}); give at least {one:,}, or other batch sizes."
            )
        raise InputError(
            f"A token budget of {requested:,} is less than the {one:,} that are a whole number of steps at every batch "
            f"size; give at least {one:,}, or other batch sizes."
        )
    quanta = requested // one
    return quanta * one, math.ceil(quanta / max(1, points)) * one


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDesign:
    """What decides how many runs a sweep makes and how fast they are.

    `tokens_per_second`: measured alone on the device, per global batch size; a size without a measurement counts as
    fast as the nearest measured one. `concurrency_gain`: tokens/s of all `workers` together over that of one run alone.
    Its default of 1 assumes that workers sharing a device are together no faster than a run that has all of it, which
    errs on the safe side (1.3 was measured on two cores); give the number of devices where every worker has its own.
    `max_runs`: cells at most; `total_runs`: runs at most, with their seeds. `points`: evaluations of a run at most.
    """

    sizes: Sequence[int]
    tokens_per_second: Mapping[int, float]
    sequence_length: int = 1
    learning_rates: int = 4
    repeats: Repeats = REPEATS
    adaptive: bool = False
    max_extensions: int = 3
    max_runs: int | None = None
    total_runs: int | None = None
    points: int = 8
    warmup_fractions: Sequence[float] = (0.1,)
    workers: int = 1
    concurrency_gain: float = 1.0
    unit: Unit = Unit.TOKENS

    @property
    def steps_to_judge(self) -> int:
        """Fewest steps at which a batch size is judged at every warm-up."""
        return max(map(steps_to_judge, self.warmup_fractions))

    def steps(self, token_budget: int, size: int) -> int:
        """Whole optimizer steps of a run."""
        return token_budget // (size * self.sequence_length)


@dataclass(frozen=True, slots=True)
class SweepCost:
    """Runs of a sweep, and seconds per token of its budget: of the planned runs, of one extension per size."""

    runs: int
    runs_at_most: int
    planned: float
    extensions: float


def fixed_budget(requested: int, sweep: SweepDesign) -> BudgetDecision:
    """The plan for a token budget that was asked for: rounded to the quantum, with the time it will take.

    InputError when it is smaller than one quantum.
    """
    return _plan(requested, sweep, sweep_cost(sweep), RESERVE)


def plan_budget(time_seconds: float | None, sweep: SweepDesign, *, reserve: float = RESERVE) -> BudgetDecision:
    """The largest token budget with which the whole sweep should end within `time_seconds` (None: the default).

    Time for one extension per batch size is set aside where extensions are allowed. Where that would leave the largest
    size with under 50 steps (or 5 of warm-up), it is spent on steps instead; sizes that are undertrained even then are
    named. InputError when not even one quantum fits into the time, or no speed is known.
    """
    time_seconds = time_seconds or DEFAULT_TIME_BUDGET
    one = quantum(sweep.sizes, sweep.sequence_length)
    cost = sweep_cost(sweep)
    if cost.planned == 0:
        raise InputError("No batch size could be timed, so time cannot be turned into tokens; give --token-budget.")
    usable = time_seconds * (1 - reserve)
    needed = sweep.steps_to_judge * max(sweep.sizes) * sweep.sequence_length
    enough = math.ceil(needed / one) * one
    tokens = usable / (cost.planned + cost.extensions)
    if tokens < enough:
        tokens = min(usable / cost.planned, enough)
    if round(tokens, 6) < one:
        whole_minutes = 60 * math.ceil(one * cost.planned / (1 - reserve) / 60)
        raise InputError(
            f"{format_duration(time_seconds)} is not enough for {one:,} {sweep.unit} per run, the fewest that are a "
            f"whole number of steps at every batch size; give at least {format_duration(whole_minutes)}, or fewer, "
            "smaller or rounder batch sizes."
        )
    return _plan(int(round(tokens, 6)), sweep, cost, reserve)


def runs_within(token_budget: int, max_tokens: int | None) -> int | None:
    """Runs of a sweep whose every run has `token_budget`, seeds included; None without a bound. InputError when none
    fits."""
    if max_tokens is None:
        return None
    runs = max_tokens // token_budget
    if runs < 1:
        raise InputError(
            f"All runs together may use {max_tokens:,} (--max-tokens), less than one run of {token_budget:,}; give "
            "more, or a smaller --token-budget."
        )
    return runs


def steps_to_judge(warmup_fraction: float) -> int:
    """Fewest steps at which a batch size is judged: 50, and 5 of warm-up where there is any."""
    warmup = math.ceil(round(MIN_WARMUP_STEPS / warmup_fraction, 9)) if warmup_fraction > 0 else 0
    return max(MIN_STEPS, warmup)


def runs_planned(
    sizes: int,
    learning_rates: int,
    repeats: Repeats,
    *,
    adaptive: bool,
    max_runs: int | None = None,
    warmups: int = 1,
) -> int:
    """Runs of a grid that needs no extension, or the most that an adaptive search is given, with their seeds; at each
    of `warmups` warm-ups.

    An adaptive search may have repeated a cell that is not the best in the end; that is one run more.
    """
    cells = (explored(sizes, learning_rates) if adaptive else sizes * learning_rates) * warmups
    cells = cells if max_runs is None else min(cells, max_runs)
    return cells + repeats.runs(sizes, warmups) + (adaptive and repeats.seeds > 1 and cells >= 2 * FEWEST)


def explored(sizes: int, learning_rates: int) -> int:
    """Most cells of an adaptive search. A single learning rate is kept; of several only the ends count."""
    return min(EXPLORED, sizes * (EXPLORED_OF_A_SIZE if learning_rates > 1 else 1))


def sweep_cost(sweep: SweepDesign) -> SweepCost:
    """Repeats are counted at the two slowest sizes, since any may turn out to be the best; the run of half the budget,
    from which the slope is read, at the slowest."""
    speeds, repeats, number = sweep.tokens_per_second, sweep.repeats, len(sweep.sizes)
    warmups = len(sweep.warmup_fractions)
    repeated = repeats.runs(number, warmups)
    per_token = [1 / (speed_near(size, speeds) * sweep.concurrency_gain) for size in sweep.sizes if speeds]
    runs = most = runs_planned(
        number,
        sweep.learning_rates,
        repeats,
        adaptive=sweep.adaptive,
        max_runs=sweep.max_runs,
        warmups=warmups,
    )
    if not sweep.adaptive:
        most = runs_at_most(number, sweep.learning_rates, repeats, sweep.max_extensions, warmups)
        most = most if sweep.max_runs is None else min(most, sweep.max_runs + repeated)
    cells = (runs - repeated) * sum(per_token) / number
    slowest = sorted(per_token, reverse=True)[:2]
    half = max(per_token, default=0.0) / 2 if number > 1 else 0.0
    planned = cells + repeats.runs(1) * (sum(slowest) + (warmups - 1) * max(slowest, default=0.0)) + half
    if sweep.total_runs is not None:
        planned *= min(1.0, sweep.total_runs / runs)
        runs, most = min(runs, sweep.total_runs), min(most, sweep.total_runs)
    extensions = sum(per_token) * min(float(warmups), (most - runs) / number)
    return SweepCost(runs, most, planned, extensions)


def speed_near(size: int, tokens_per_second: Mapping[int, float]) -> float:
    """Tokens per second at a size, or at the nearest one that was measured."""
    nearest = min(tokens_per_second, key=lambda measured: (abs(math.log(measured / size)), measured))
    return tokens_per_second[nearest]


def _plan(requested: int, sweep: SweepDesign, cost: SweepCost, reserve: float) -> BudgetDecision:
    budget, interval = token_budget_of(requested, sweep.sizes, sweep.sequence_length, sweep.points)
    least = sweep.steps_to_judge
    undertrained = tuple(size for size in sweep.sizes if sweep.steps(budget, size) < least)
    seconds = budget * cost.planned / (1 - reserve) if cost.planned else None
    return BudgetDecision(
        token_budget=budget,
        evaluation_interval=interval,
        adaptive=sweep.adaptive,
        runs_planned=cost.runs,
        runs_at_most=cost.runs_at_most,
        workers=sweep.workers,
        seconds_planned=seconds,
        steps_of_largest=sweep.steps(budget, max(sweep.sizes)),
        steps_to_judge=least,
        undertrained=undertrained,
    )
