"""How many runs at a time, and how many tokens each."""

from __future__ import annotations

import math
from dataclasses import replace

import psutil

from batchlab.core.experiment import BudgetConfig
from batchlab.engines.cards import visible_cards
from batchlab.engines.resources import Concurrency, plan_concurrency, usable_cores
from batchlab.search.budget import (
    SweepDesign,
    fixed_budget,
    plan_budget,
    quantum,
    runs_within,
    steps_to_judge,
)
from batchlab.search.equal_time import equal_time_budget
from batchlab.search.repeats import Repeats
from batchlab.search.starting_rates import swept_rates
from batchlab.storage.decisions import BudgetDecision, ConcurrencyDecision, Decisions
from batchlab.study.batch_axis import DEFAULT_PASSES
from batchlab.study.session import Session
from batchlab.study.stages.failure import StageFailed


def concurrency_stage(session: Session, worker_bytes: int | None) -> Concurrency:
    """How many runs at a time, with how many threads. Decided once, because threads change the last bits."""
    asked, hosts = session.study.experiment.device, session.hosts
    shared = asked.data_parallel_size  # devices of one run
    if hosts:
        threads = asked.threads or max(1, hosts[0].threads // shared)
        used = [host for host in hosts if host.holds(shared, session.study.task_info.device)]
        planned = Concurrency(sum(host.workers_at(shared * threads) for host in used), threads)
    else:
        planned = plan_concurrency(
            session.study.task_info.device,
            max(1, usable_cores() // shared),
            workers=asked.workers,
            threads=asked.threads,
            devices=max(1, _cards(session) // shared),
            worker_bytes=None if worker_bytes is None else worker_bytes * shared,
            free_bytes=psutil.virtual_memory().available,
        )
    decision = ConcurrencyDecision(workers=planned.workers, threads=planned.threads)
    decided = session.study.store.decide(Decisions(concurrency=decision)).concurrency
    assert decided is not None
    return Concurrency(decided.workers, decided.threads)


def _at_full_speed(session: Session) -> int:
    """Runs at a time, each as fast as it was measured alone."""
    device, shared = session.study.task_info.device, session.study.experiment.device.data_parallel_size
    if session.hosts:
        return sum(host.places(shared, device) for host in session.hosts if host.holds(shared, device))
    return max(1, _cards(session) // shared)


def _cards(session: Session) -> int:
    """Devices that runs are spread over: all visible cards where any of them was asked for, else the one device."""
    return max(1, len(visible_cards())) if session.study.task_info.device == "cuda" else 1


def learning_rates_of(session: Session) -> tuple[float, ...]:
    """The learning rates to start from: as given, or by the task's optimizer."""
    return swept_rates(session.study.experiment, session.study.task_info)


def budget_stage(session: Session, rates: dict[int, float], concurrency: Concurrency) -> BudgetDecision:
    """Tokens of every run: as given, or as many as the measured throughput allows in the given time, for the whole
    sweep or for each run.

    `rates`: tokens per second by global batch size. Raises StageFailed where none could be measured, InputError where
    the time or tokens given are too few for one run.
    """
    experiment = session.study.experiment
    asked, sizes = experiment.budget, experiment.batch.global_batch_sizes
    if not rates:
        raise StageFailed("The throughput of no batch size could be measured, so there is nothing to sweep over.")
    sweep = SweepDesign(
        sizes=sizes,
        tokens_per_second=rates,
        sequence_length=experiment.sequence_length,
        learning_rates=len(learning_rates_of(session)),
        repeats=Repeats(experiment.sweep.seeds, len(experiment.sweep.confirmation_seeds)),
        adaptive=experiment.sweep.search == "adaptive",
        max_extensions=experiment.sweep.max_extensions,
        max_runs=asked.max_runs,
        points=experiment.evaluation.points,
        warmup_fractions=experiment.warmup_fractions,
        workers=concurrency.workers,
        concurrency_gain=min(concurrency.workers, _at_full_speed(session)),
        unit=experiment.unit,
    )
    if asked.run_time_seconds is not None:
        plan = equal_time_budget(asked.run_time_seconds, sweep)
    elif asked.token_budget is not None:
        plan = _fixed(asked.token_budget, asked, sweep)
    else:
        plan = plan_budget(asked.time_budget_seconds, sweep)
        most = _most_tokens(session, plan)
        if most is not None and plan.token_budget > most:
            plan = _fixed(most, asked, sweep)
    session.study.store.decide(Decisions(budget=plan))
    return decided_budget(session)


def decided_budget(session: Session) -> BudgetDecision:
    """What the sweep spends, as it was decided. Raises StageFailed where it is not decided yet."""
    decided = session.study.store.decisions().budget
    if decided is None:
        raise StageFailed("The budget of the sweep is not decided yet; run `batchlab study` first.")
    return decided


def _fixed(token_budget: int, asked: BudgetConfig, sweep: SweepDesign) -> BudgetDecision:
    """The plan at this many tokens a run, and no more runs than `max_tokens` allows."""
    plan = fixed_budget(token_budget, sweep)
    most = runs_within(plan.token_budget, asked.max_tokens)
    return plan if most is None else fixed_budget(token_budget, replace(sweep, total_runs=most))


def _most_tokens(session: Session, plan: BudgetDecision) -> int | None:
    """The bound of a run's tokens where they were not given: a share of `max_tokens`; without a time, the data."""
    asked = session.study.experiment.budget
    bounds = [] if asked.time_budget_seconds is not None else [_data_bound(session)]
    if asked.max_tokens is not None:
        experiment = session.study.experiment
        one = quantum(experiment.batch.global_batch_sizes, experiment.sequence_length)
        bounds.append(max(one, asked.max_tokens // plan.runs_planned))
    return min(bounds, default=None)


def _data_bound(session: Session) -> int:
    """Tokens of DEFAULT_PASSES over the training data, or of the steps by which the largest size can be judged."""
    experiment = session.study.experiment
    passes = DEFAULT_PASSES[experiment.unit] * (session.study.task_info.train_samples or 0)
    needed = max(map(steps_to_judge, experiment.warmup_fractions)) * math.lcm(*experiment.batch.global_batch_sizes)
    return max(passes, needed) * experiment.sequence_length
