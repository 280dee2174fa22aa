"""Batch size × learning rate at a constant token budget."""

from __future__ import annotations

from batchlab.core.spec import Diagnostics, TrainSpec
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.budget import explored, runs_within, token_budget_of
from batchlab.search.grid import UNBOUNDED, GridSearch
from batchlab.search.trial import Trial
from batchlab.storage.decisions import Decisions
from batchlab.study.prior import outcome_of, start_of
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.budget import learning_rates_of
from batchlab.study.stages.context import SweepContext
from batchlab.words.progress import sweep_title
from batchlab.words.search import stop_reason

SNAPSHOTS = {"light": 16, "full": 64}
"""Diagnostic snapshots of a run, at most; benchmarks/diagnostics_cost measures what they cost."""


def sweep_stage(session: Session, context: SweepContext) -> None:
    """Train what the search asks for, until it stops: cells first, then more seeds at the best ones."""
    experiment, budget = context.experiment, context.budget
    search = _search(session, context)
    tried_oom: set[int] = set()
    with open_engine(session, context.concurrency.workers) as engine:
        while trials := search.ask():
            running = [trial for trial in trials if _worth_running(trial, context, tried_oom)]
            specs = [train_spec(session, trial, context) for trial in running]
            session.view.stage(sweep_title(len(specs), budget.token_budget, experiment.unit), len(specs))
            records = dict(zip(running, run_specs(session, specs, engine), strict=True))
            search.tell(list(trials), [outcome_of(records.get(trial)) for trial in trials])
    if isinstance(search, AdaptiveSearch) and search.stopped:
        session.study.store.decide(Decisions(search_stopped=search.stopped))
        session.view.say(f"   the search ended: {stop_reason(search.stopped)}")


def _search(session: Session, context: SweepContext) -> GridSearch | AdaptiveSearch:
    """What decides which cells to train, within the runs and tokens that the sweep may use."""
    experiment, budget = context.experiment, context.budget
    sizes, rates, sweep = experiment.batch.global_batch_sizes, learning_rates_of(session), experiment.sweep
    most = runs_within(budget.token_budget, experiment.budget.max_tokens)
    if sweep.search == "grid":
        return GridSearch(
            sizes,
            rates,
            max_extensions=sweep.max_extensions,
            seeds=sweep.seeds,
            confirm=len(sweep.confirmation_seeds),
            first_seed=sweep.first_seed,
            max_runs=experiment.budget.max_runs,
            total_runs=most,
        )
    hint, earlier = start_of(session.study.store.decisions().prior, budget.token_budget)
    return AdaptiveSearch(
        sizes,
        rates,
        hint=hint,
        earlier=earlier,
        round_size=context.concurrency.workers,
        max_runs=min(explored(len(sizes), len(rates)), experiment.budget.max_runs or UNBOUNDED),
        total_runs=most,
        seeds=sweep.seeds,
        confirm=len(sweep.confirmation_seeds),
        first_seed=sweep.first_seed,
    )


def _worth_running(trial: Trial, context: SweepContext, tried_oom: set[int]) -> bool:
    """A size known to run out of memory is run once, so that a record says so, and not at every learning rate."""
    size = trial.global_batch_size
    if not context.known_oom(context.layout(size)):
        return True
    first = size not in tried_oom
    tried_oom.add(size)
    return first


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
