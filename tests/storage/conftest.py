"""A small experiment and its specs, for tests of what is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment, TaskReference, build_experiment
from batchlab.core.record import CapacityResult, Outcome, Record, ThroughputResult, TrainResult
from batchlab.core.spec import CapacitySpec, Spec, ThroughputSpec, TrainSpec, Workload, run_id

TASK = TaskReference(kind="recipe", target="quickstart")


@pytest.fixture
def experiment() -> Experiment:
    return build_experiment({"name": "small", "task": TASK.model_dump()})


@pytest.fixture
def train_spec() -> Callable[..., TrainSpec]:
    def build(batch: int = 4, learning_rate: float = 1e-3, seed: int = 0, **more: Any) -> TrainSpec:
        return TrainSpec(
            workload=Workload(task=TASK, sequence_length=8),
            layout=BatchLayout(global_batch_size=batch, micro_batch_size=batch, sequence_length=8),
            learning_rate=learning_rate,
            seed=seed,
            token_budget=batch * 8 * 10,
            evaluation_interval=batch * 8 * 5,
            **more,
        )

    return build


@pytest.fixture
def finished_runs(train_spec: Callable[..., TrainSpec]) -> list[tuple[Spec, Record]]:
    """One run of every kind that the tables list, two of training."""
    workload = Workload(task=TASK, sequence_length=8)
    layout = BatchLayout(global_batch_size=4, micro_batch_size=2, sequence_length=8)
    specs: list[tuple[Spec, Any, Outcome]] = [
        (
            train_spec(batch=16, learning_rate=0.1),
            TrainResult(
                steps=10,
                tokens=1280,
                val_loss=1 / 3,
                best_val_loss=0.1 + 0.2,
                seconds=1.25,
                tokens_per_second=1024.5,
                clipped_fraction=0.5,
            ),
            Outcome.COMPLETED,
        ),
        (
            train_spec(batch=4, learning_rate=10.0),
            TrainResult(steps=3, tokens=96, seconds=0.5),
            Outcome.DIVERGED,
        ),
        (
            ThroughputSpec(workload=workload, layout=layout),
            ThroughputResult(
                tokens_per_second=5000.0, tokens_per_second_blocks=(5000.0,), step_seconds=0.1, warmup_seconds=1.0
            ),
            Outcome.COMPLETED,
        ),
        (
            CapacitySpec(workload=workload, micro_batch_size=64),
            CapacityResult(micro_batch_size=64, fits=False),
            Outcome.OUT_OF_MEMORY,
        ),
    ]
    return [
        (
            spec,
            Record(run_id=run_id(spec), outcome=outcome, result=result, reason="" if outcome == "completed" else "x"),
        )
        for spec, result, outcome in specs
    ]
