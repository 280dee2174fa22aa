"""What a sweep will cost, said before it starts: runs, tokens, arithmetic, and memory that every batch size needs."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.core.experiment import Experiment, OptimizerConfig
from batchlab.core.format import format_bytes, format_count
from batchlab.core.record import TaskInfo
from batchlab.search.budget import runs_planned, runs_within, token_budget_of
from batchlab.search.grid import default_learning_rates
from batchlab.search.repeats import Repeats

FLOPS_PER_PARAMETER = 6
"""Per token: two to multiply and add forward, twice that backward (Kaplan et al. 2020, arXiv:2001.08361). Attention
scores come on top; rows of an embedding table that are only looked up are counted and cost nothing."""

BYTES = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """`tokens` is None where time is given instead and speed decides; `unit` is what they are."""

    runs: int
    tokens: int | None
    flops: float | None
    state_bytes: int
    unit: str

    @property
    def text(self) -> str:
        """One line for the person who is about to wait."""
        said = f"{self.runs} runs"
        if self.tokens is not None and self.flops is not None:
            total = self.tokens * self.runs
            said += (
                f" × {format_count(self.tokens)} {self.unit} = {format_count(total)} {self.unit}, "
                f"about {_format_flops(self.flops)} (6 × parameters × {self.unit})"
            )
        return f"{said}; weights, gradients and optimizer state of one take {format_bytes(self.state_bytes)}"


def cost_of(experiment: Experiment, task_info: TaskInfo) -> Cost:
    """The planned sweep's cost: its cells and seeds, without extensions; weights in float32.

    The arithmetic assumes that each sample's share of the model is every parameter once per token, which holds for
    language models and dense layers, and falls short for convolutions.
    """
    rates = experiment.sweep.learning_rates or default_learning_rates(task_info.optimizer_family)
    sizes, budget = experiment.batch.global_batch_sizes, experiment.budget
    sweep = experiment.sweep
    repeats = Repeats(sweep.seeds, len(sweep.confirmation_seeds))
    runs = runs_planned(len(sizes), len(rates), repeats, adaptive=sweep.search == "adaptive")
    most, tokens = budget.max_runs, None
    if budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        most = runs_within(tokens, budget.max_runs, budget.max_tokens)
    runs = runs if most is None else min(runs, most)
    copies = 2 + _moments(experiment.optimizer, task_info)
    return Cost(
        runs=runs,
        tokens=tokens,
        flops=None if tokens is None else float(FLOPS_PER_PARAMETER) * task_info.parameter_count * tokens * runs,
        state_bytes=task_info.parameter_count * BYTES * copies,
        unit=experiment.unit.value,
    )


def _moments(optimizer: OptimizerConfig, task_info: TaskInfo) -> int:
    """Numbers an optimizer keeps per parameter; a person's own of an unknown kind counts as two."""
    if task_info.optimizer_family == "sgd":
        return 0 if optimizer.name == "sgd" and optimizer.momentum == 0 else 1
    return 2


def _format_flops(flops: float) -> str:
    for factor, name in ((1e18, "exaFLOP"), (1e15, "petaFLOP"), (1e12, "teraFLOP")):
        if flops >= factor:
            return f"{flops / factor:.3g} {name}"
    return f"{flops / 1e9:.3g} gigaFLOP"
