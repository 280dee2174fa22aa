"""The simulated framework and recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig, OptimizerConfig, TaskReference, build_experiment
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.core.task import Task, task
from batchlab.recipes import recipe
from batchlab.runs.workload import load
from batchlab.simulated.framework import SimulatedFramework
from batchlab.simulated.machine import Simulation, simulation

RECIPE = TaskReference(kind="recipe", target="simulated")
DEVICE = DeviceSettings(name="simulated")


def workload(**settings: Any) -> Workload:
    return Workload.model_validate({"task": RECIPE, "unit": Unit.SAMPLES, **settings})


def test_the_recipe_loads_and_trains(tmp_path: Path) -> None:
    loaded = load(workload(model={"samples": 100, "dimensions": 3}), tmp_path)
    assert len(loaded.train) == 100
    assert "(100 × 3)" in loaded.source
    trainable = loaded.framework.trainable(loaded.task, DEVICE, OptimizerSettings())
    trainable.init(0)
    batch = loaded.train.gather(np.arange(4))
    trainable.accumulate(batch, 0.25)
    assert float(trainable.apply(0.1).grad_norm) > 0
    assert trainable.parameter_count() == 3
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_is_a_valid_experiment_with_every_parameter() -> None:
    settings = recipe("simulated").experiment
    experiment = build_experiment({"name": "s", "task": RECIPE, **settings})
    assert simulation(experiment.model) == Simulation()
    again = type(experiment).model_validate_json(experiment.model_dump_json())
    assert simulation(again.model) == Simulation()


def test_parameters_change_the_digest(tmp_path: Path) -> None:
    digests = {
        load(workload(model={"samples": 64, **more}), tmp_path).data_digest
        for more in ({}, {"table_seed": 1}, {"gradient_noise": 2.0}, {"fixed_bytes": 1})
    }
    assert len(digests) == 3  # memory settings do not change the data


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": {"dimension": 4}}, "Did you mean 'dimensions'"),
        ({"model": {"dimensions": 0}}, "model.dimensions is 0; give a whole number from 1 to 10000"),
        ({"model": {"dimensions": 2.5}}, "model.dimensions is 2.5; give a whole number"),
        ({"model": {"condition": "big"}}, "model.condition is 'big'; give a number from 1"),
        ({"model": {"rounding": -0.1}}, "give a number from 0"),
        ({"model": {"start_loss": float("nan")}}, "model.start_loss is nan"),
        ({"model": {"dimensions": 1e30}}, "model.dimensions is 1e+30"),
        ({"model": {"dimensions": 10_000, "samples": 10_001}}, "more than 100,000,000 numbers"),
        ({"model": {"samples": True}}, "model.samples is True"),
        ({"data": DataConfig(path="x.txt")}, "makes its own data"),
        ({"sequence_length": 8}, "counts in samples"),
    ],
)
def test_invalid_settings_are_rejected(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        load(workload(**settings), tmp_path)
    assert says in str(caught.value)


def test_devices() -> None:
    framework = SimulatedFramework()
    assert framework.resolve_device("auto") == framework.resolve_device("simulated") == "simulated"
    with pytest.raises(InputError, match=r"set device\.name=simulated"):
        framework.resolve_device("cuda:0")
    assert framework.bound_memory(DEVICE) == (0, None)
    environment = framework.environment(DEVICE)
    assert environment.framework == environment.device == "simulated"


def test_start_seeds_the_global_generators() -> None:
    framework = SimulatedFramework()
    drawn = []
    for seed in (5, 5, 6):
        framework.start(DEVICE, seed)
        drawn.append(np.random.random())
    assert drawn[0] == drawn[1] != drawn[2]


def given_task(model: Any) -> Task:
    return task(model=model, loss=print, train=(np.zeros(2), np.zeros(2)), valid=(np.zeros(2), np.zeros(2)))


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"compile": "default"}])
def test_settings_that_are_not_simulated_are_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="always computes in float64"):
        SimulatedFramework().trainable(given_task(Simulation), DEVICE.model_copy(update=change), OptimizerSettings())


@pytest.mark.parametrize("change", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"grad_clip": 1.0}, {"name": "adamw"}])
def test_copies_are_for_plain_sgd_only(change: dict[str, Any]) -> None:
    task = given_task(lambda: simulation({"copies": 2, "samples": 8}))
    plain = {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "grad_clip": None}
    SimulatedFramework().trainable(task, DEVICE, OptimizerSettings(config=OptimizerConfig.model_validate(plain)))
    other = OptimizerSettings(config=OptimizerConfig.model_validate(plain | change))
    with pytest.raises(InputError, match=r"set model\.copies to 1"):
        SimulatedFramework().trainable(task, DEVICE, other)


def test_other_models_are_rejected() -> None:
    with pytest.raises(InputError, match="not dict"):
        SimulatedFramework().trainable(given_task(dict), DEVICE, OptimizerSettings())


def test_a_trace_equals_the_formula_of_the_machine(tmp_path: Path) -> None:
    loaded = load(workload(), tmp_path)
    sample = loaded.train.gather(np.zeros(1, np.int64))
    spec = TraceSpec(workload=workload(), micro_batch_sizes=(24, 3), evaluation_batch_size=5, device=DEVICE)
    result = loaded.framework.trace(loaded.task, spec, sample, sample)
    machine = Simulation().machine
    assert [point.micro_batch_size for point in result.points] == [3, 24]
    assert [point.peak.total_bytes for point in result.points] == [machine.peak_bytes(5), machine.peak_bytes(24)]
    assert [point.peak.phase for point in result.points] == ["evaluation", "forward"]
