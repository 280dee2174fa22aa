"""Batch size × learning rate at a constant token budget."""

from __future__ import annotations

import math

from batchlab.core.experiment import Experiment
from batchlab.scaling import LearningRateRule, learning_rate_ratio
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.budget import explored, runs_within
from batchlab.search.grid import UNBOUNDED, GridSearch
from batchlab.search.trial import Trial
from batchlab.storage.decisions import Decisions
from batchlab.study.prior import outcome_of, start_of
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.budget import learning_rates_of
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.train_specs import train_spec
from batchlab.study.stages.verdict_runs import Left, verdict_runs
from batchlab.words.progress import sweep_title
from batchlab.words.search import stop_reason


def sweep_stage(session: Session, context: SweepContext) -> None:
    """Train what the search asks for, until it stops: cells first, then more seeds at the best ones; then the runs that
    tell what its answer costs."""
    experiment, budget = context.experiment, context.budget
    search = _search(session, context)
    tried_oom: set[int] = set()
    with open_engine(session, context.concurrency.workers) as engine:
        while trials := search.ask():
            running = [trial for trial in trials if _worth_running(trial, context, tried_oom)]
            specs = [train_spec(session, trial, context) for trial in running]
            session.view.stage(sweep_title(len(specs), budget, experiment.unit), len(specs))
            records = dict(zip(running, run_specs(session, specs, engine), strict=True))
            search.tell(list(trials), [outcome_of(records.get(trial)) for trial in trials])
        verdict_runs(session, context, engine, _left(context, len(search.outcomes)))
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
            scale=_by_rule(experiment),
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


def _by_rule(experiment: Experiment) -> dict[int, float]:
    """Learning rate at each batch size over that at the reference, where a rule was asked for."""
    if experiment.sweep.learning_rate_rule is None:
        return {}
    rule, reference = LearningRateRule(experiment.sweep.learning_rate_rule), experiment.reference_batch_size
    return {size: learning_rate_ratio(rule, reference, size) for size in experiment.batch.global_batch_sizes}


def _left(context: SweepContext, made: int) -> Left:
    """What the search leaves of the runs that time was planned for (of a grid, one extension per size among them), and
    of the limit on tokens."""
    asked, tokens = context.experiment.budget, context.budget.token_budget
    allowed = math.inf if asked.max_tokens is None else asked.max_tokens / tokens - made
    budget, sizes = context.budget, len(context.experiment.batch.global_batch_sizes)
    return Left(min(budget.runs_at_most, budget.runs_planned + sizes) - made, allowed)


def _worth_running(trial: Trial, context: SweepContext, tried_oom: set[int]) -> bool:
    """A size known to run out of memory is run once, so that a record says so, and not at every learning rate."""
    size = trial.global_batch_size
    if not context.known_oom(context.layout(size)):
        return True
    first = size not in tried_oom
    tried_oom.add(size)
    return first
