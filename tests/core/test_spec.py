"""Specs: a tagged union that survives JSON, and a run_id that names what affects a result and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from batchlab.core.batch import lay_out
from batchlab.core.experiment import ScheduleConfig, TaskReference
from batchlab.core.spec import (
    SPEC,
    AllReduceSpec,
    CapacitySpec,
    CheckSpec,
    DeviceSettings,
    InspectSpec,
    OptimizerSettings,
    Spec,
    ThroughputSpec,
    TraceSpec,
    TrainSpec,
    WorkersSpec,
    Workload,
    run_id,
)

WORKLOAD = Workload(task=TaskReference(kind="recipe", target="quickstart"), sequence_length=64, data_digest="d")


def train(**changes: Any) -> TrainSpec:
    values: dict[str, Any] = {
        "workload": WORKLOAD,
        "layout": lay_out(32, 16, sequence_length=64),
        "learning_rate": 1e-3,
        "token_budget": 32 * 64 * 100,
        "evaluation_interval": 32 * 64 * 10,
    }
    return TrainSpec.model_validate({**values, **changes})


def one_of_each() -> list[Spec]:
    return [
        InspectSpec(workload=WORKLOAD),
        CheckSpec(workload=WORKLOAD),
        TraceSpec(workload=WORKLOAD, micro_batch_sizes=(2, 8)),
        CapacitySpec(workload=WORKLOAD, micro_batch_size=8),
        ThroughputSpec(workload=WORKLOAD, layout=lay_out(8, 8)),
        train(),
        WorkersSpec(workload=WORKLOAD, layout=lay_out(8, 4, data_parallel_size=2)),
        AllReduceSpec(workload=WORKLOAD, data_parallel_size=2),
    ]


@pytest.mark.parametrize("spec", one_of_each(), ids=lambda spec: spec.kind)
def test_round_trip_through_json_keeps_kind_and_identity(spec: Spec) -> None:
    again = SPEC.validate_json(SPEC.dump_json(spec))
    assert again == spec
    assert type(again) is type(spec)
    assert run_id(again) == run_id(spec)
    shuffled = dict(reversed(json.loads(SPEC.dump_json(spec)).items()))
    assert run_id(SPEC.validate_python(shuffled)) == run_id(spec)


def test_run_ids_are_readable_and_all_different() -> None:
    names = [run_id(spec) for spec in one_of_each()]
    assert len(set(names)) == len(one_of_each())
    assert names[5].startswith("train-b32-lr0.001-s0-")
    assert names[4].startswith("throughput-b8-")
    assert names[3].startswith("capacity-m8-")
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in names)


@settings(deadline=None)
@given(rate=st.floats(1e-9, 1e3), seed=st.integers(0, 2**40), size=st.integers(1, 5000))
def test_run_id_is_stable_over_a_round_trip(rate: float, seed: int, size: int) -> None:
    spec = train(learning_rate=rate, seed=seed, layout=lay_out(size, 7))
    assert run_id(SPEC.validate_json(spec.model_dump_json())) == run_id(spec)


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1.0000001e-3},
        {"seed": 1},
        {"token_budget": 32 * 64 * 101},
        {"evaluation_interval": 32 * 64 * 20},
        {"evaluation_samples": 255},
        {"evaluation_batch_size": 31},
        {"layout": lay_out(32, 8, sequence_length=64)},
        {"schedule": ScheduleConfig(warmup_fraction=0.2)},
        {"optimizer": OptimizerSettings(batch_ratio=2.0)},
        {"device": DeviceSettings(threads=2)},
        {"device": DeviceSettings(precision="bf16")},
        {"workload": WORKLOAD.model_copy(update={"data_digest": "e"})},
        {"workload": WORKLOAD.model_copy(update={"code_digest": "e"})},
        {"workload": WORKLOAD.model_copy(update={"model": {"layers": 3}})},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_affects_a_result_makes_another_run(change: dict[str, Any]) -> None:
    assert run_id(train(**change)) != run_id(train())


def test_how_often_progress_is_saved_makes_no_other_run() -> None:
    assert run_id(train(log_points=7, checkpoint_seconds=0.0)) == run_id(train())


@pytest.mark.parametrize(
    ("steps", "warmup", "undertrained"),
    [(100, 0.1, False), (50, 0.1, False), (49, 0.2, True), (100, 0.04, True), (100, 0.0, False), (100, 0.05, False)],
)
def test_starved_is_under_50_steps_or_under_5_warm_up_steps(steps: int, warmup: float, undertrained: bool) -> None:
    spec = train(token_budget=32 * 64 * steps, schedule=ScheduleConfig(warmup_fraction=warmup))
    assert spec.steps == steps
    assert spec.warmup_tokens == pytest.approx(warmup * steps * 32 * 64)
    assert spec.undertrained is undertrained


@pytest.mark.parametrize(
    "change", [{"learning_rate": 0.0}, {"seed": -1}, {"token_budget": 0}, {"kind": "other"}, {"unknown": 1}]
)
def test_wrong_specs_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SPEC.validate_python({**train().model_dump(), **change})
