"""The stages of a study. Each executes specs, and settles what the next one needs as a decision on disk.

A stage run again finds its records and decisions and does only what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from batchlab.batch import BatchLayout, Unit, format_bytes, lay_out
from batchlab.engines.pool import visible_cuda_devices
from batchlab.record import CapacityResult, CheckResult, Outcome, Record, ThroughputResult, TrainResult
from batchlab.resources import Concurrency, plan_concurrency, usable_cores
from batchlab.search.adaptive import AdaptiveSearch
from batchlab.search.budget import BudgetPlan, fixed_budget, plan_budget, steps_to_judge
from batchlab.search.capacity import CapacitySearch
from batchlab.search.grid import GridSearch, Trial, TrialOutcome, default_learning_rates
from batchlab.session import Session, opened_engine, run_alone, run_specs
from batchlab.spec import (
    CapacitySpec,
    CheckSpec,
    DeviceSettings,
    ThroughputSpec,
    TrainSpec,
)


class StageFailed(Exception):
    """A stage cannot give what the next one needs; the text says why."""


LARGEST_EVALUATION_BATCH = 64

DEFAULT_PASSES = {Unit.TOKENS: 4, Unit.SAMPLES: 30}
"""Where neither tokens nor time were asked for, a run goes over its data at most so often. Text repeated up to 4 times
trains nearly as well as new text (Muennighoff et al. 2023, arXiv:2305.16264); images and tables are repeated more."""


def check_stage(session: Session) -> CheckResult | Record:
    """Is the task sound? The check's result, or the record of a check that itself failed."""
    middle = session.opened.experiment.reference_batch_size
    device = session.device.model_copy(update={"memory_limit": None})  # soundness is asked here, not size
    spec = CheckSpec(
        workload=session.opened.workload,
        largest_batch=session.opened.experiment.batch.global_batch_sizes[-1],
        optimizer=session.optimizer(middle),
        device=device,
    )
    record = run_alone(session, [spec])[0]
    return record.result if isinstance(record.result, CheckResult) else record


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the capacity stage settled. `max_micro_batch_size` None: not even the smallest size fitted."""

    max_micro_batch_size: int | None
    smallest_failed: int | None
    worker_bytes: int | None


def capacity_stage(session: Session, *, separable: bool, beyond_need: bool = False) -> Capacity:
    """Find the largest micro-batch that fits, by default only up to what the sweep needs."""
    opened = session.opened
    experiment, store = opened.experiment, opened.store
    sizes = experiment.batch.global_batch_sizes
    needed = min(experiment.batch.micro_batch_size or sizes[-1], sizes[-1])
    splittable = separable and experiment.batch.micro_batching == "auto"
    smallest = 1 if separable else 2
    search = CapacitySearch(needed=max(needed, smallest), smallest=min(smallest, needed), prove=beyond_need)
    device = session.device
    if beyond_need and device.memory_limit is None and device.name == "cpu":
        # Decided once: what is free changes all the time, and another limit would be another probe.
        limit = store.decide("capacity_limit", int(0.8 * psutil.virtual_memory().available))
        device = device.model_copy(update={"memory_limit": limit})
    peaks: list[int] = []
    while asked := search.ask():
        specs = [
            CapacitySpec(
                workload=opened.workload,
                micro_batch_size=size,
                grad_accum_steps=2 if splittable else 1,
                evaluation_batch_size=min(size, LARGEST_EVALUATION_BATCH),
                optimizer=session.optimizer(experiment.reference_batch_size),
                device=device,
            )
            for size in asked
        ]
        records = run_alone(session, specs)
        broken = [r for r in records if r.outcome is Outcome.FAILED]
        if broken:
            raise StageFailed(f"The task failed while its memory was measured: {broken[0].reason}")
        search.tell(list(asked), [record.outcome is Outcome.COMPLETED for record in records])
        peaks += [_process_bytes(record) for record in records]
    limit, limit_is = _memory_limit(device)
    decided = store.decide(
        "capacity" if beyond_need else "micro_batch",
        {
            "max_micro_batch_size": search.largest,
            "status": search.status,
            "searched_up_to": max(needed, search.largest or 0),
            "smallest_failed": search.smallest_failed,
            "limit_bytes": limit,
            "limit_is": limit_is,
        },
    )
    return Capacity(decided["max_micro_batch_size"], decided["smallest_failed"], max(peaks, default=0) or None)


def _process_bytes(record: Record) -> int:
    result = record.result
    if not isinstance(result, CapacityResult) or not result.fits:
        return 0
    return (result.baseline_bytes or 0) + max(result.peak_allocated_bytes or 0, result.peak_reserved_bytes or 0)


def _memory_limit(device: DeviceSettings) -> tuple[int | None, str]:
    if device.memory_limit is not None:
        if device.name == "cpu":
            return device.memory_limit, "VmData of a worker above its warmed-up baseline (soft RLIMIT_DATA)"
        return device.memory_limit, "the device's allocator, as asked with --memory-limit"
    if device.name == "cpu":
        return psutil.virtual_memory().total, "this machine's memory; no limit was set"
    return None, "the device's own memory"


def layout_for(session: Session, global_batch_size: int, capacity: Capacity, *, separable: bool) -> BatchLayout:
    """How a global batch is cut: unsplit where it fits or may not be split, else in the fewest pieces that fit."""
    batch = session.opened.experiment.batch
    ceiling = min(capacity.max_micro_batch_size or 1, batch.micro_batch_size or global_batch_size)
    if batch.micro_batching == "off" or not separable:
        ceiling = global_batch_size
    return lay_out(global_batch_size, ceiling, sequence_length=session.opened.experiment.sequence_length)


def hopeless(layout: BatchLayout, capacity: Capacity) -> bool:
    """The layout holds a micro-batch at which a probe already ran out of memory."""
    return capacity.smallest_failed is not None and layout.micro_batch_size >= capacity.smallest_failed


def throughput_stage(session: Session, layouts: Sequence[BatchLayout]) -> dict[int, ThroughputResult]:
    """What was measured by global batch size; sizes whose measurement failed are absent."""
    specs = [
        ThroughputSpec(
            workload=session.opened.workload,
            layout=layout,
            optimizer=session.optimizer(layout.global_batch_size),
            device=session.device,
        )
        for layout in layouts
    ]
    records = run_alone(session, specs)
    return {
        layout.global_batch_size: record.result
        for layout, record in zip(layouts, records, strict=True)
        if isinstance(record.result, ThroughputResult)
    }


def concurrency_stage(session: Session, worker_bytes: int | None) -> Concurrency:
    """How many runs at a time with how many threads; threads change the last bits, so this is decided once."""
    experiment = session.opened.experiment
    planned = plan_concurrency(
        session.opened.subject.device,
        usable_cores(),
        workers=experiment.device.workers,
        threads=experiment.device.threads,
        devices=max(1, len(visible_cuda_devices())),
        worker_bytes=worker_bytes,
        free_bytes=psutil.virtual_memory().available,
    )
    decided = session.opened.store.decide(
        "threads",
        {"workers": planned.workers, "threads": planned.threads, "measure_threads": planned.measure_threads},
    )
    return Concurrency(**decided)


def budget_stage(session: Session, rates: dict[int, float], concurrency: Concurrency) -> BudgetPlan:
    """Tokens of every run: as asked, or what the measured throughput allows in the time asked."""
    experiment = session.opened.experiment
    asked, sizes = experiment.budget, experiment.batch.global_batch_sizes
    if not rates:
        raise StageFailed("No batch size could be measured, so there is nothing to sweep over.")
    common: dict[str, Any] = {
        "sizes": sizes,
        "tokens_per_second": rates,
        "sequence_length": experiment.sequence_length,
        "learning_rates": len(learning_rates_of(session)),
        "seeds": experiment.sweep.seeds,
        "max_extensions": experiment.sweep.max_extensions,
        "points": experiment.evaluation.points,
        "warmup_fraction": experiment.schedule.warmup_fraction,
        "max_runs": asked.max_runs,
        "workers": concurrency.workers,
        "unit": experiment.unit,
    }
    if asked.token_budget is not None:
        plan = fixed_budget(asked.token_budget, **common)
    else:
        plan = plan_budget(asked.time_budget_seconds, **common)
        if asked.time_budget_seconds is None and plan.token_budget > (most := _data_bound(session)):
            plan = fixed_budget(most, **common)
    decided = session.opened.store.decide("budget", plan.as_dict())
    return BudgetPlan(**decided)


def _data_bound(session: Session) -> int:
    """Tokens of DEFAULT_PASSES over the training data, or what the largest size needs to be judged if that is more."""
    experiment = session.opened.experiment
    passes = DEFAULT_PASSES[experiment.unit] * session.opened.subject.train_samples
    needed = steps_to_judge(experiment.schedule.warmup_fraction) * math.lcm(*experiment.batch.global_batch_sizes)
    return max(passes, needed) * experiment.sequence_length


def sweep_stage(
    session: Session,
    layouts: dict[int, BatchLayout],
    budget: BudgetPlan,
    concurrency: Concurrency,
    capacity: Capacity,
) -> None:
    """Batch × learning rate at a constant token budget, coarse first, then edges, then seeds."""
    experiment = session.opened.experiment
    search = _search(session, budget, concurrency)
    tried_hopeless: set[int] = set()
    with opened_engine(session, concurrency.workers) as engine:
        while trials := search.ask():
            running = [trial for trial in trials if _worth_running(trial, layouts, capacity, tried_hopeless)]
            specs = [train_spec(session, trial, layouts, budget, concurrency, capacity) for trial in running]
            session.view.stage(f"sweep: {len(specs)} runs of {budget.token_budget:,} {experiment.unit}", len(specs))
            records = dict(zip(running, run_specs(session, specs, engine), strict=True))
            search.tell(list(trials), [_outcome(records.get(trial)) for trial in trials])
    if isinstance(search, AdaptiveSearch):
        session.view.say(f"   {search.stopped}")


def _search(session: Session, budget: BudgetPlan, concurrency: Concurrency) -> GridSearch | AdaptiveSearch:
    """What decides which cells to train; an adaptive one never takes more runs than the grid would."""
    experiment = session.opened.experiment
    sizes, rates, sweep = experiment.batch.global_batch_sizes, learning_rates_of(session), experiment.sweep
    if sweep.search == "adaptive":
        return AdaptiveSearch(
            sizes,
            rates,
            round_size=concurrency.workers,
            max_runs=experiment.budget.max_runs or budget.runs_planned,
            seeds=sweep.seeds,
            first_seed=sweep.first_seed,
        )
    return GridSearch(
        sizes,
        rates,
        max_extensions=sweep.max_extensions,
        seeds=sweep.seeds,
        first_seed=sweep.first_seed,
        max_runs=experiment.budget.max_runs,
    )


def _worth_running(trial: Trial, layouts: dict[int, BatchLayout], capacity: Capacity, tried_hopeless: set[int]) -> bool:
    """A size at which a probe ran out of memory is run once, so that the record says so, and not at every LR."""
    size = trial.global_batch_size
    if not hopeless(layouts[size], capacity):
        return True
    first = size not in tried_hopeless
    tried_hopeless.add(size)
    return first


def learning_rates_of(session: Session) -> tuple[float, ...]:
    """The grid: as asked, or by what kind of optimizer the task has."""
    opened = session.opened
    return opened.experiment.sweep.learning_rates or default_learning_rates(opened.subject.optimizer_family)


def train_spec(
    session: Session,
    trial: Trial,
    layouts: dict[int, BatchLayout],
    budget: BudgetPlan,
    concurrency: Concurrency,
    capacity: Capacity,
) -> TrainSpec:
    """The training run of one trial."""
    experiment = session.opened.experiment
    return TrainSpec(
        workload=session.opened.workload,
        layout=layouts[trial.global_batch_size],
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        token_budget=budget.token_budget,
        schedule=experiment.schedule,
        optimizer=session.optimizer(trial.global_batch_size),
        evaluation_interval=budget.evaluation_interval,
        evaluation_samples=experiment.evaluation.samples,
        evaluation_batch_size=min(LARGEST_EVALUATION_BATCH, capacity.max_micro_batch_size or 1),
        device=session.device.model_copy(update={"threads": concurrency.threads}),
    )


def _outcome(record: Record | None) -> TrialOutcome:
    """A trial that was not run, because its size is known not to fit, counts as out of memory."""
    if record is None:
        return TrialOutcome(loss=None, why=Outcome.OUT_OF_MEMORY)
    if record.outcome is not Outcome.COMPLETED or not isinstance(record.result, TrainResult):
        return TrialOutcome(loss=None, why=record.outcome)
    return TrialOutcome(loss=record.result.final_val_loss, judged=not record.result.starved)


def describe_capacity(session: Session, capacity: Capacity, *, beyond_need: bool = False) -> str:
    """The stage's result as a line."""
    decided = session.opened.store.decisions().get("capacity" if beyond_need else "micro_batch", {})
    limit = (
        f" within {format_bytes(decided['limit_bytes'])} ({decided['limit_is']})" if decided.get("limit_bytes") else ""
    )
    if capacity.max_micro_batch_size is None:
        return f"   nothing fits{limit}"
    if capacity.smallest_failed is not None:
        tail = f"; {capacity.smallest_failed} does not"
    else:
        tail = "; nothing larger was tried" if beyond_need else ", all that the sweep needs"
    return f"   micro-batch {capacity.max_micro_batch_size} fits{limit}{tail}"
