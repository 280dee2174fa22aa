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
    tokens = budget.tokens_of(trial.global_batch_size)
    warmup = experiment.warmup_fractions[0] if trial.warmup_fraction is None else trial.warmup_fraction
    return TrainSpec(
        workload=session.study.workload,
        layout=layout,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        token_budget=tokens,
        schedule=experiment.schedule_with(warmup),
        optimizer=session.optimizer(trial.global_batch_size, trial.learning_rate),
        evaluation_interval=budget.interval_of(trial.global_batch_size),
        evaluation_samples=experiment.evaluation.samples,
        evaluation_batch_size=context.evaluation_batch_size,
        repeatable=context.repeatable,
        diagnostics=_diagnostics(context, trial.global_batch_size),
        gradients=context.gradient_sampling(layout, tokens // layout.tokens_per_step),
        device=session.device.model_copy(update={"threads": context.concurrency.threads}),
    )


def _diagnostics(context: SweepContext, size: int) -> Diagnostics | None:
    """Snapshots at token counts that end a step of every batch size, so that all sizes have them at the same tokens;
    at equal time, at the same shares of it."""
    experiment = context.experiment
    if experiment.diagnostics == "off":
        return None
    points = SNAPSHOTS[experiment.diagnostics]
    sizes = experiment.batch.global_batch_sizes if context.budget.run_seconds is None else (size,)
    _, interval = token_budget_of(context.budget.tokens_of(size), sizes, experiment.sequence_length, points)
    return Diagnostics(level=experiment.diagnostics, interval=interval)
