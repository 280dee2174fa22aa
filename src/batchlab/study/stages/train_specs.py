"""The spec of one training run of a sweep."""

from __future__ import annotations

from batchlab.core.spec import Diagnostics, TrainSpec
from batchlab.search.budget import token_budget_of
from batchlab.search.trial import Trial
from batchlab.study.session import Session
from batchlab.study.stages.context import SweepContext

SNAPSHOTS = {"light": 16, "full": 64}
"""Diagnostic snapshots of a run, at most; benchmarks/diagnostics_cost measures what they cost."""


def train_spec(session: Session, trial: Trial, context: SweepContext) -> TrainSpec:
    """The training run of one trial."""
    experiment, budget = context.experiment, context.budget
    layout = context.layout(trial.global_batch_size)
    return TrainSpec(
        workload=session.study.workload,
        layout=layout,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        token_budget=budget.token_budget,
        schedule=experiment.schedule,
        optimizer=session.optimizer(trial.global_batch_size, trial.learning_rate),
        evaluation_interval=budget.evaluation_interval,
        evaluation_samples=experiment.evaluation.samples,
        evaluation_batch_size=context.evaluation_batch_size,
        repeatable=context.repeatable,
        diagnostics=_diagnostics(context),
        gradients=context.gradient_sampling(layout, budget.token_budget // layout.tokens_per_step),
        device=session.device.model_copy(update={"threads": context.concurrency.threads}),
    )


def _diagnostics(context: SweepContext) -> Diagnostics | None:
    """Snapshots at token counts that end a step of every batch size, so that all sizes have them at the same tokens."""
    experiment = context.experiment
    if experiment.diagnostics == "off":
        return None
    sizes, points = experiment.batch.global_batch_sizes, SNAPSHOTS[experiment.diagnostics]
    _, interval = token_budget_of(context.budget.token_budget, sizes, experiment.sequence_length, points)
    return Diagnostics(level=experiment.diagnostics, interval=interval)
