"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import gc
import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
from tests.injections import pytest_terminal_summary  # noqa: F401 - the table at the end of a test run

from batchlab.core.batch import Unit, lay_out
from batchlab.core.experiment import Experiment, TaskReference, build_experiment
from batchlab.core.record import (
    CapacityResult,
    Environment,
    MetricRow,
    Outcome,
    Record,
    TaskInfo,
    ThroughputResult,
    TrainResult,
)
from batchlab.core.spec import (
    CapacitySpec,
    DeviceSettings,
    OptimizerSettings,
    Spec,
    ThroughputSpec,
    TrainSpec,
    Workload,
    run_id,
)
from batchlab.engines.inline import InlineEngine
from batchlab.search.grid import GridSearch
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.storage.decisions import BudgetDecision, CapacityDecision, ConcurrencyDecision, Decisions, LimitKind


def pytest_collection_finish() -> None:
    """What was imported stays: the collections that torch's users and these tests ask for need not look at it."""
    gc.collect()
    gc.freeze()


SyntheticStudy = tuple[Experiment, TaskInfo, list[tuple[Spec, Record]], Callable[[str], list[MetricRow]], Decisions]

BASELINE_BYTES, STATIC_BYTES, BYTES_PER_SAMPLE = 200 * 2**20, 20 * 2**20, 20 * 2**20
"""A micro-batch of 48 takes 980 MiB above the baseline: it fits under the default limit of 990 MiB, 49 does not."""

# The same examples every time, so that a test never fails by luck; HYPOTHESIS_PROFILE=explore looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies of real models run in this process, which imports torch once. Each worker takes five seconds for that."""
    monkeypatch.setattr(
        "batchlab.study.engines.engine_factory",
        lambda asked, hosts=(), begins=None: lambda folder, workers: InlineEngine(folder),
    )


@pytest.fixture(scope="session")
def synthetic_study() -> Callable[..., SyntheticStudy]:
    """Builder of a whole study's records from formulas with known truth.

    loss(B, LR) = floor + batch_curvature·log2(B/best_batch)² + lr_curvature·log2(LR/best_lr(B))² + noise, with
    best_lr(B) = best_lr·(B/best_batch)^lr_exponent. Noise has standard deviation `noise_sd`, of whose variance the
    share `correlation` is the seed's, the same in every cell. tokens/s = peak_speed·B/(B + half_speed_batch).
    Cells whose LR is more than `diverges_above` times the best diverge. Sizes in `out_of_memory` run out of memory,
    those in `failed` raise an error. `fall`: one run of the best size at each learning rate has half the budget, and a
    loss this much higher (None: no such runs). The trials are the ones that GridSearch asks for; `keep` cuts the list
    of training runs (a partial study).
    """
    return _build


def _build(
    sizes: Sequence[int] = (4, 8, 16, 32, 64),
    learning_rates: Sequence[float] = (3e-4, 1e-3, 3e-3, 1e-2),
    *,
    best_batch: float = 16,
    best_lr: float = 1.5e-3,
    lr_exponent: float = 0.5,
    floor: float = 2.4,
    batch_curvature: float = 0.01,
    lr_curvature: float = 0.02,
    noise_sd: float = 0.004,
    correlation: float = 0.5,
    seeds: int = 3,
    max_extensions: int = 3,
    max_runs: int | None = None,
    token_budget: int = 64 * 64 * 100,
    sequence_length: int = 64,
    unit: str = "tokens",
    peak_speed: float = 60_000.0,
    half_speed_batch: float = 6.0,
    max_micro_batch_size: int = 48,
    limit_bytes: int | None = 990 * 2**20,
    diverges_above: float = 30.0,
    fall: float | None = None,
    out_of_memory: Sequence[int] = (),
    failed: Sequence[int] = (),
    pairing: str = "verified",
    keep: int | None = None,
    noise_seed: int = 0,
    name: str = "synthetic",
    settings: dict[str, Any] | None = None,
) -> SyntheticStudy:
    length = sequence_length if unit == "tokens" else 1
    experiment = build_experiment(
        {
            "name": name,
            "task": TaskReference(kind="recipe", target="simulated"),
            "unit": unit,
            "sequence_length": length,
            "batch": {"global_batch_sizes": tuple(sizes), "micro_batching": "off" if out_of_memory else "auto"},
            "sweep": {"learning_rates": tuple(learning_rates), "seeds": seeds, "max_extensions": max_extensions},
            "budget": {"token_budget": token_budget},
            "device": {"name": "cpu"},
            **(settings or {}),
        }
    )
    task_info = TaskInfo(
        unit=Unit(unit),
        sequence_length=length,
        train_samples=40_000,
        valid_samples=4_000,
        vocabulary=256,
        parameter_count=139_328,
        optimizer_family="adam",
        data_source="synthetic text with known statistics",
        data_digest="d" * 64,
        device="cpu",
    )
    world = _World(experiment, noise_sd, correlation, noise_seed)
    top = 2 ** math.ceil(math.log2(max(sizes)))
    records: list[tuple[Spec, Record]] = []
    probes = [2**i for i in range(top.bit_length())]
    if max_micro_batch_size < top:
        probes += [max_micro_batch_size, max_micro_batch_size + 1]
    for micro in sorted(set(probes)):
        records.append(world.capacity(micro, micro <= max_micro_batch_size, limit_bytes))
    layouts = {
        size: lay_out(size, size if size in out_of_memory else min(max_micro_batch_size, size), sequence_length=length)
        for size in sizes
    }
    speed = {size: peak_speed * size / (size + half_speed_batch) for size in sizes}
    for size in sizes:
        if size not in out_of_memory:
            records.append(world.throughput(layouts[size], speed[size]))

    interval = max(1, token_budget // (8 * top * length)) * top * length
    curves: dict[str, float] = {}
    grid = GridSearch(sizes, learning_rates, max_extensions=max_extensions, seeds=seeds, max_runs=max_runs)
    trained: list[tuple[Spec, Record]] = []
    while trials := grid.ask():
        outcomes = []
        for trial in trials:
            size, rate = trial.global_batch_size, trial.learning_rate
            lr_there = best_lr * (size / best_batch) ** lr_exponent
            loss: float | None = (
                floor
                + batch_curvature * math.log2(size / best_batch) ** 2
                + lr_curvature * math.log2(rate / lr_there) ** 2
                + world.noise(trial)
            )
            outcome, reason = Outcome.COMPLETED, ""
            if size in out_of_memory:
                outcome, reason = Outcome.OUT_OF_MEMORY, "Out of memory in step 1: micro-batching is off."
            elif size in failed:
                outcome, reason = Outcome.FAILED, "RuntimeError: the task raised an error in step 3."
            elif rate > diverges_above * lr_there:
                outcome, reason = Outcome.DIVERGED, "The loss became NaN at step 12."
            if outcome is not Outcome.COMPLETED:
                loss = None
            spec = world.train_spec(trial, layouts[size], token_budget, interval)
            if loss is not None:
                curves[run_id(spec)] = loss
            trained.append(world.train(spec, loss, outcome, reason, speed[size], pairing))
            outcomes.append(TrialOutcome(loss, judged=not spec.undertrained))
        grid.tell(trials, outcomes)
    records += trained if keep is None else trained[:keep]
    if fall is not None:
        records += [
            world.half_budget(whole, curves[run_id(whole)] + fall, speed[whole.layout.global_batch_size], pairing)
            for whole, _ in trained
            if isinstance(whole, TrainSpec) and whole.layout.global_batch_size == best_batch and whole.seed == 0
            if run_id(whole) in curves
        ]
    specs = {run_id(spec): spec for spec, _ in records}

    def rows(identity: str) -> list[MetricRow]:
        spec = specs[identity]
        assert isinstance(spec, TrainSpec)
        return _rows(spec, curves.get(identity), speed[spec.layout.global_batch_size])

    failing = max_micro_batch_size + 1 if max_micro_batch_size < top else None
    decisions = Decisions(
        task_info=task_info,
        micro_batch=CapacityDecision(
            max_micro_batch_size=min(max_micro_batch_size, top),
            searched_up_to=top,
            smallest_failed=failing,
            limit_bytes=limit_bytes,
            limit_is=LimitKind.WORKER_DATA,
        ),
        concurrency=ConcurrencyDecision(workers=2, threads=1),
        budget=BudgetDecision(
            token_budget=token_budget,
            evaluation_interval=interval,
            adaptive=False,
            runs_planned=len(trained),
            runs_at_most=len(trained),
            workers=2,
            seconds_planned=None,
            steps_of_largest=50,
            steps_to_judge=50,
            undertrained=(),
        ),
    )
    return experiment, task_info, records, rows, decisions


class _World:
    """Makes specs and their records; the noise of a run depends only on its cell and seed."""

    def __init__(self, experiment: Experiment, noise_sd: float, correlation: float, noise_seed: int) -> None:
        self.experiment = experiment
        self.noise_sd = noise_sd
        self.correlation = correlation
        self.noise_seed = noise_seed
        self.device = DeviceSettings(threads=1)
        self.workload = Workload(
            task=experiment.task,
            unit=experiment.unit,
            sequence_length=experiment.sequence_length,
            data_digest="d" * 64,
        )
        self.environment = Environment(
            batchlab="0.1.0",
            python="3.12.0",
            numpy="2.0.0",
            framework="simulated",
            platform="Linux",
            processor="a simulated processor",
            device="cpu",
            cores=2,
        )

    def noise(self, trial: Trial) -> float:
        shared = random.Random(f"{self.noise_seed} {trial.seed}").gauss(0, 1)
        place = f"global_batch_size={trial.global_batch_size}, learning_rate={trial.learning_rate}, seed={trial.seed}"
        own = random.Random(f"{self.noise_seed} Trial({place})").gauss(0, 1)
        return self.noise_sd * (math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own)

    def optimizer(self, size: int) -> OptimizerSettings:
        return OptimizerSettings(
            config=self.experiment.optimizer, batch_ratio=size / self.experiment.reference_batch_size
        )

    def peak(self, micro: int) -> int:
        return STATIC_BYTES + micro * BYTES_PER_SAMPLE

    def memory(self, micro: int) -> dict[str, Any]:
        peak = self.peak(micro)
        return {"peak_bytes": peak, "measured": "allocated", "peak_in_use_bytes": peak}

    def record(self, spec: Spec, outcome: Outcome = Outcome.COMPLETED, reason: str = "", **more: Any) -> Record:
        return Record(run_id=run_id(spec), outcome=outcome, reason=reason, environment=self.environment, **more)

    def capacity(self, micro: int, fits: bool, limit: int | None) -> tuple[Spec, Record]:
        spec = CapacitySpec(workload=self.workload, micro_batch_size=micro, device=self.device)
        result = CapacityResult(
            micro_batch_size=micro,
            fits=fits,
            steps=3 if fits else 0,
            baseline_bytes=BASELINE_BYTES,
            **(self.memory(micro) if fits else {}),
        )
        outcome = Outcome.COMPLETED if fits else Outcome.OUT_OF_MEMORY
        return spec, self.record(
            spec, outcome, "" if fits else f"Out of memory under a limit of {limit} bytes.", result=result
        )

    def throughput(self, layout: Any, speed: float) -> tuple[Spec, Record]:
        spec = ThroughputSpec(workload=self.workload, layout=layout, device=self.device)
        result = ThroughputResult(
            tokens_per_second=speed,
            tokens_per_second_blocks=tuple(speed * factor for factor in (0.98, 0.99, 1.0, 1.01, 1.02)),
            step_seconds=layout.tokens_per_step / speed,
            warmup_seconds=0.4,
            **self.memory(layout.micro_batch_size),
        )
        return spec, self.record(spec, result=result)

    def train_spec(self, trial: Trial, layout: Any, token_budget: int, interval: int) -> TrainSpec:
        return TrainSpec(
            workload=self.workload,
            layout=layout,
            learning_rate=trial.learning_rate,
            seed=trial.seed,
            token_budget=token_budget,
            schedule=self.experiment.schedule,
            optimizer=self.optimizer(trial.global_batch_size),
            evaluation_interval=interval,
            device=self.device,
        )

    def half_budget(self, whole: TrainSpec, loss: float, speed: float, pairing: str) -> tuple[Spec, Record]:
        changes = {"token_budget": whole.token_budget // 2, "evaluation_interval": whole.evaluation_interval // 2}
        return self.train(whole.model_copy(update=changes), loss, Outcome.COMPLETED, "", speed, pairing)

    def train(
        self, spec: TrainSpec, loss: float | None, outcome: Outcome, reason: str, speed: float, pairing: str
    ) -> tuple[Spec, Record]:
        steps = spec.steps if loss is not None else 12
        curve = tuple((row.tokens, row.val_loss) for row in _rows(spec, loss, speed) if row.val_loss is not None)
        result = TrainResult(
            steps=steps,
            tokens=steps * spec.layout.tokens_per_step,
            final_train_loss=None if loss is None else loss - 0.05,
            val_loss=loss,
            best_val_loss=loss,
            val_curve=curve,
            clipped_fraction=0.1,
            epochs=spec.token_budget / (40_000 * spec.layout.sequence_length),
            undertrained=spec.undertrained,
            seconds=spec.token_budget / speed,
            tokens_per_second=speed * 0.8,
            **self.memory(spec.layout.micro_batch_size),
        )
        gone = outcome in (Outcome.OUT_OF_MEMORY, Outcome.FAILED)
        return spec, self.record(spec, outcome, reason, result=None if gone else result, pairing=pairing)


def _rows(spec: TrainSpec, loss: float | None, speed: float) -> list[MetricRow]:
    """Forty rows of training and the evaluations; a run that diverged has three rows, the last without a number."""
    per_step = spec.layout.tokens_per_step
    if loss is None:
        return [
            MetricRow(step=i, tokens=i * per_step, train_loss=value, learning_rate=spec.learning_rate, grad_norm=9.0)
            for i, value in ((1, 5.5), (6, 7.5), (12, math.inf))
        ]
    every = max(1, spec.steps // 40)
    marks = {step * per_step for step in range(every, spec.steps + 1, every)}
    evaluations = {*range(spec.evaluation_interval, spec.token_budget + 1, spec.evaluation_interval), spec.token_budget}
    rows = []
    for tokens in sorted(marks | evaluations):
        share = tokens / spec.token_budget
        here = loss + (5.5 - loss) * (math.exp(-6 * share) - math.exp(-6))
        if tokens in marks:
            rows.append(
                MetricRow(
                    step=tokens // per_step,
                    tokens=tokens,
                    train_loss=here - 0.05,
                    learning_rate=spec.learning_rate,
                    grad_norm=0.4 + math.exp(-6 * share),
                    clipped_fraction=0.3 if share < 0.2 else 0.05,
                    step_seconds=per_step / speed,
                    tokens_per_second=speed * 0.8,
                    in_use_bytes=10 * 2**20,
                )
            )
        if tokens in evaluations:
            rows.append(MetricRow(step=tokens // per_step, tokens=tokens, val_loss=here))
    return rows
