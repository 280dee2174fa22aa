"""Batch × learning rate at a constant token budget."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment
from batchlab.core.spec import Diagnostics, GradientSampling, TrainSpec
from batchlab.engines.resources import Concurrency
from batchlab.runs.gradient_samples import steps_between
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.budget import runs_within, token_budget_of
from batchlab.search.grid import GridSearch
from batchlab.search.trial import Trial
from batchlab.storage.decisions import BudgetDecision, Decisions
from batchlab.study.prior import outcome_of, start_of
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.budget import learning_rates_of
from batchlab.study.stages.capacity import LARGEST_EVALUATION_BATCH
from batchlab.study.stages.throughput import known_oom
from batchlab.words.search import stop_reason

LOOKS = {"light": 16, "full": 64}
"""At most so many looks at a run; benchmarks/diagnostics_cost has what they cost."""


def sweep_stage(
    session: Session,
    layouts: dict[int, BatchLayout],
    budget: BudgetDecision,
    concurrency: Concurrency,
    capacity: Capacity,
    *,
    sample_independent: bool,
) -> None:
    """Batch × learning rate at a constant token budget, then seeds where the best lies."""
    experiment = session.study.experiment
    search = _search(session, budget, concurrency)
    tried_hopeless: set[int] = set()
    with open_engine(session, concurrency.workers) as engine:
        while trials := search.ask():
            running = [trial for trial in trials if _worth_running(trial, layouts, capacity, tried_hopeless)]
            specs = [
                train_spec(
                    session, trial, layouts, budget, concurrency, capacity, sample_independent=sample_independent
                )
                for trial in running
            ]
            session.view.stage(f"sweep: {len(specs)} runs of {budget.token_budget:,} {experiment.unit}", len(specs))
            records = dict(zip(running, run_specs(session, specs, engine), strict=True))
            search.tell(list(trials), [outcome_of(records.get(trial)) for trial in trials])
    if isinstance(search, AdaptiveSearch) and search.stopped:
        session.study.store.decide(Decisions(search_stopped=search.stopped))
        session.view.say(f"   the search ended: {stop_reason(search.stopped)}")


def _search(session: Session, budget: BudgetDecision, concurrency: Concurrency) -> GridSearch | AdaptiveSearch:
    """What decides which cells to train, within the runs and tokens that the sweep may use."""
    experiment = session.study.experiment
    sizes, rates, sweep = experiment.batch.global_batch_sizes, learning_rates_of(session), experiment.sweep
    asked = experiment.budget
    most = runs_within(budget.token_budget, asked.max_runs, asked.max_tokens)
    if sweep.search == "grid":
        return GridSearch(
            sizes,
            rates,
            max_extensions=sweep.max_extensions,
            seeds=sweep.seeds,
            confirm=len(sweep.confirmation_seeds),
            first_seed=sweep.first_seed,
            max_runs=most,
        )
    hint, earlier = start_of(session.study.store.decisions().prior, budget.token_budget)
    return AdaptiveSearch(
        sizes,
        rates,
        hint=hint,
        earlier=earlier,
        round_size=concurrency.workers,
        max_runs=most or budget.runs_planned,
        seeds=sweep.seeds,
        confirm=len(sweep.confirmation_seeds),
        first_seed=sweep.first_seed,
    )


def _worth_running(trial: Trial, layouts: dict[int, BatchLayout], capacity: Capacity, tried_hopeless: set[int]) -> bool:
    """A size at which a probe ran out of memory is run once, so that the record says so, and not at every LR."""
    size = trial.global_batch_size
    if not known_oom(layouts[size], capacity):
        return True
    first = size not in tried_hopeless
    tried_hopeless.add(size)
    return first


def train_spec(
    session: Session,
    trial: Trial,
    layouts: dict[int, BatchLayout],
    budget: BudgetDecision,
    concurrency: Concurrency,
    capacity: Capacity,
    *,
    sample_independent: bool,
) -> TrainSpec:
    """The training run of one trial."""
    experiment = session.study.experiment
    layout = layouts[trial.global_batch_size]
    return TrainSpec(
        workload=session.study.workload,
        layout=layout,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        token_budget=budget.token_budget,
        schedule=experiment.schedule,
        optimizer=session.optimizer(trial.global_batch_size),
        evaluation_interval=budget.evaluation_interval,
        evaluation_samples=experiment.evaluation.samples,
        evaluation_batch_size=min(LARGEST_EVALUATION_BATCH, capacity.max_micro_batch_size or 1),
        diagnostics=_diagnostics(session, budget),
        gradients=gradient_sampling(
            experiment, layout, budget.token_budget // layout.tokens_per_step, sample_independent=sample_independent
        ),
        device=session.device.model_copy(update={"threads": concurrency.threads}),
    )


def _diagnostics(session: Session, budget: BudgetDecision) -> Diagnostics | None:
    """Looks at token counts that end a step of every batch size, so that sizes are seen at the same moments."""
    experiment = session.study.experiment
    if experiment.diagnostics == "off":
        return None
    sizes, points = experiment.batch.global_batch_sizes, LOOKS[experiment.diagnostics]
    _, interval = token_budget_of(budget.token_budget, sizes, experiment.sequence_length, points)
    return Diagnostics(level=experiment.diagnostics, interval=interval)


def gradient_sampling(
    experiment: Experiment, layout: BatchLayout, steps: int, *, sample_independent: bool
) -> GradientSampling | None:
    """How a run of `steps` samples its gradients. Compiled models are not split: every shape is compiled anew.

    Where a lone micro-batch may not be cut in two, norm layers tell its samples apart, unless samples influence each
    other or the model is compiled.
    """
    if not experiment.noise.points:
        return None
    lone, plain = len(layout.micro_batch_sizes()) == 1, sample_independent and not experiment.device.compile
    split = plain and experiment.batch.micro_batching == "auto"
    norm_layers = (sample_independent and experiment.noise.parameters == "norm_layers") or (
        plain and lone and not split
    )
    return GradientSampling(
        every=steps_between(steps, experiment.noise.points, layout),
        parameters="norm_layers" if norm_layers else "all",
        split_lone=split,
    )
