"""What a sweep will cost, before it starts: runs, tokens, arithmetic, and the memory that every batch size needs."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.core.experiment import BudgetConfig, Experiment, OptimizerConfig
from batchlab.core.record import TaskInfo
from batchlab.search.budget import runs_planned, runs_within, token_budget_of
from batchlab.search.repeats import Repeats
from batchlab.search.starting_rates import swept_rates

FLOPS_PER_PARAMETER = 6
"""Per token: two for multiply and add in the forward pass, twice that in the backward pass (Kaplan et al. 2020,
arXiv:2001.08361). Attention scores are left out; rows of an embedding table are counted, although a lookup is free."""

BYTES = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Of all planned runs; `tokens` of one of them, None where a time is given and the speed decides.

    run_seconds: of every run, where they last equally long. half_budget: whether one run of half the budget is added,
    from which the slope of the loss against tokens is read.
    """

    runs: int
    tokens: int | None
    flops: float | None
    state_bytes: int | None  # weights, gradients and optimizer state of one run
    unit: Unit
    run_seconds: float | None = None
    half_budget: bool = False


def cost_of(experiment: Experiment, task_info: TaskInfo) -> Cost:
    """The planned sweep's cost: its cells and seeds, without extensions; weights in float32.

    The arithmetic assumes that every token uses every parameter once, which holds for language models and dense
    layers, and underestimates convolutions.
    """
    rates = swept_rates(experiment, task_info)
    sizes, budget = experiment.batch.global_batch_sizes, experiment.budget
    sweep = experiment.sweep
    repeats = Repeats(sweep.seeds, len(sweep.confirmation_seeds))
    runs = runs_planned(
        len(sizes),
        len(rates),
        repeats,
        adaptive=sweep.search == "adaptive",
        max_runs=budget.max_runs,
        warmups=len(experiment.warmup_fractions),
    )
    most, tokens = None, None
    if budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        most = runs_within(tokens, budget.max_tokens)
    runs = runs if most is None else min(runs, most)
    half = len(sizes) > 1 and experiment.schedule.kind != "constant" and (tokens is None or _room(budget, tokens, runs))
    spent = runs + half / 2
    copies = 2 + _moments(experiment.optimizer, task_info)
    parameters = task_info.parameter_count
    return Cost(
        runs=runs,
        tokens=tokens,
        flops=None
        if tokens is None or parameters is None
        else float(FLOPS_PER_PARAMETER) * parameters * tokens * spent,
        state_bytes=None if parameters is None else parameters * BYTES * copies,
        unit=experiment.unit,
        run_seconds=budget.run_time_seconds,
        half_budget=half,
    )


def _room(budget: BudgetConfig, tokens: int, runs: int) -> bool:
    """Whether the limit on all tokens leaves half a run."""
    return budget.max_tokens is None or budget.max_tokens >= (runs + 0.5) * tokens


def _moments(optimizer: OptimizerConfig, task_info: TaskInfo) -> int:
    """Values that an optimizer keeps per parameter; an optimizer of an unknown kind counts as two."""
    if task_info.optimizer_family == "sgd":
        return 0 if optimizer.name == "sgd" and optimizer.momentum == 0 else 1
    return 2
