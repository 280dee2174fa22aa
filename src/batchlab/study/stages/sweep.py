"""Batch size × learning rate at a constant token budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.analysis.sweep.baseline import baseline_seeds
from batchlab.core.experiment import Experiment
from batchlab.scaling import LearningRateRule, learning_rate_ratio
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.budget import explored, runs_within
from batchlab.search.grid import UNBOUNDED, GridSearch
from batchlab.search.prior import Hint
from batchlab.search.repeats import Repeats
from batchlab.search.retries import Retries
from batchlab.search.trial import Trial
from batchlab.search.warmups import WarmupSearch
from batchlab.storage.decisions import Decisions
from batchlab.study.prior import outcome_of, start_of
from batchlab.study.session import Session, open_engine, run_specs
from batchlab.study.stages.budget import learning_rates_of
from batchlab.study.stages.context import SweepContext
from batchlab.study.stages.train_specs import train_spec
from batchlab.study.stages.verdict_runs import Left, verdict_runs
from batchlab.words.progress import sweep_title
from batchlab.words.retries import retry_rule
from batchlab.words.search import stop_reason


def sweep_stage(session: Session, context: SweepContext) -> None:
    """Train what the search asks for, until it stops: cells first, then more seeds at the best ones; then the runs that
    tell what its answer costs."""
    experiment, budget = context.experiment, context.budget
    search = _search(session, context)
    if experiment.sweep.retry_diverged:
        session.view.say(f"   {retry_rule(experiment.sweep.retry_diverged)}")
    tried_oom: set[int] = set()
    with open_engine(session, context.concurrency.workers) as engine:
        while trials := search.ask():
            running = [trial for trial in trials if _worth_running(trial, context, tried_oom)]
            specs = [train_spec(session, trial, context) for trial in running]
            warmups = {trial.warmup_fraction for trial in running}
            session.view.stage(sweep_title(len(specs), budget, experiment.unit, warmups), len(specs))
            records = dict(zip(running, run_specs(session, specs, engine), strict=True))
            search.tell(list(trials), [outcome_of(records.get(trial)) for trial in trials])
        on_top = len(search.retried) if isinstance(search, WarmupSearch) else 0
        verdict_runs(session, context, engine, _left(context, len(search.outcomes), on_top))
    if search.stopped:
        session.study.store.decide(Decisions(search_stopped=search.stopped))
        session.view.say(f"   the search ended: {stop_reason(search.stopped)}")


def _search(session: Session, context: SweepContext) -> GridSearch | AdaptiveSearch | WarmupSearch:
    """What decides which cells to train, within the runs and tokens that the sweep may use."""
    experiment, sweep = context.experiment, context.experiment.sweep
    repeats = Repeats(sweep.seeds, len(sweep.confirmation_seeds), sweep.first_seed)
    total = runs_within(context.budget.token_budget, experiment.budget.max_tokens)
    total = None if total is None else max(1, total - _baseline_runs(experiment))
    cells = _Cells(session, context)
    if len(experiment.warmup_fractions) == 1 and not sweep.retry_diverged:
        return cells.search(repeats, experiment.budget.max_runs or UNBOUNDED, total)
    alone = Repeats(1, 0, sweep.first_seed)
    return WarmupSearch(
        experiment.warmup_fractions,
        lambda most, earlier: cells.search(alone, most, None, earlier),
        repeats,
        retries=Retries(sweep.retry_diverged),
        max_runs=experiment.budget.max_runs,
        total_runs=total,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """Makes searches over batch size and learning rate."""

    session: Session
    context: SweepContext

    def search(
        self, repeats: Repeats, most: int, total: int | None, start: Trial | None = None
    ) -> GridSearch | AdaptiveSearch:
        """A search of `most` cells and `total` runs at most. `start`: where one at another warm-up ended."""
        experiment = self.context.experiment
        sizes, rates = experiment.batch.global_batch_sizes, learning_rates_of(self.session)
        if experiment.sweep.search == "grid":
            return GridSearch(
                sizes,
                rates,
                max_extensions=experiment.sweep.max_extensions,
                seeds=repeats.seeds,
                confirm=repeats.confirm,
                first_seed=repeats.first_seed,
                max_runs=most,
                total_runs=total,
                scale=_by_rule(experiment),
            )
        hint, earlier = start_of(self.session.study.store.decisions().prior, self.context.budget.token_budget)
        if start is not None:
            hint, earlier = Hint(start.global_batch_size, start.learning_rate), None
        return AdaptiveSearch(
            sizes,
            rates,
            hint=hint,
            earlier=earlier,
            round_size=self.context.concurrency.workers,
            max_runs=min(explored(len(sizes), len(rates)), most),
            total_runs=total,
            seeds=repeats.seeds,
            confirm=repeats.confirm,
            first_seed=repeats.first_seed,
        )


def _baseline_runs(experiment: Experiment) -> int:
    """Runs that were made before the search."""
    return 0 if experiment.baseline is None else len(baseline_seeds(experiment))


def _by_rule(experiment: Experiment) -> dict[int, float]:
    """Learning rate at each batch size over that at the reference, where a rule was asked for."""
    if experiment.sweep.learning_rate_rule is None:
        return {}
    rule, reference = LearningRateRule(experiment.sweep.learning_rate_rule), experiment.reference_batch_size
    return {size: learning_rate_ratio(rule, reference, size) for size in experiment.batch.global_batch_sizes}


def _left(context: SweepContext, made: int, on_top: int) -> Left:
    """What the search leaves of the runs that time was planned for (of a grid, one extension per size and warm-up among
    them), and of the limit on tokens. `on_top`: runs of it that no time was planned for."""
    asked, tokens = context.experiment.budget, context.budget.token_budget
    budget, experiment = context.budget, context.experiment
    made_in_all = made + _baseline_runs(experiment)
    allowed = math.inf if asked.max_tokens is None else asked.max_tokens / tokens - made_in_all
    ends = len(experiment.batch.global_batch_sizes) * len(experiment.warmup_fractions)
    return Left(min(budget.runs_at_most, budget.runs_planned + ends) - (made - on_top), allowed)


def _worth_running(trial: Trial, context: SweepContext, tried_oom: set[int]) -> bool:
    """A size known to run out of memory is run once, so that a record says so, and not at every learning rate."""
    size = trial.global_batch_size
    if not context.known_oom(context.layout(size)):
        return True
    first = size not in tried_oom
    tried_oom.add(size)
    return first
