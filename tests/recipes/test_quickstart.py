"""The quickstart recipe: a valid experiment, and a task that trains."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.experiment import DataConfig, TaskReference, build_experiment
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TrainSpec, Workload
from batchlab.recipes import recipe
from batchlab.runs.workload import load

REFERENCE = TaskReference(kind="recipe", target="quickstart")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    return path


def test_the_experiment_is_valid_and_large_enough_to_judge():
    experiment = build_experiment({"name": "q", "task": REFERENCE, **recipe("quickstart").experiment})
    sizes = experiment.batch.global_batch_sizes
    assert len(sizes) >= 3
    assert sizes[-1] >= 16 * sizes[0]
    assert experiment.sweep.learning_rates is not None
    assert len(experiment.sweep.learning_rates) >= 4
    budget, largest = experiment.budget.token_budget, sizes[-1] * experiment.sequence_length
    assert budget is not None
    assert budget % (largest * experiment.evaluation.points) == 0
    spec = TrainSpec(
        workload=Workload(task=REFERENCE, sequence_length=experiment.sequence_length),
        layout={
            "global_batch_size": sizes[-1],
            "micro_batch_size": sizes[-1],
            "sequence_length": experiment.sequence_length,
        },
        learning_rate=1e-3,
        token_budget=budget,
        schedule=experiment.schedule,
        evaluation_interval=budget // experiment.evaluation.points,
    )
    assert not spec.undertrained


def test_a_workload_becomes_a_task_that_trains(text, tmp_path):
    workload = Workload(task=REFERENCE, sequence_length=16, data=DataConfig(path=str(text)))
    loaded = load(workload, tmp_path)
    assert loaded.task.unit is Unit.TOKENS
    trainable = loaded.framework.trainable(loaded.task, DeviceSettings(), OptimizerSettings())
    trainable.init(0)
    assert trainable.parameter_count() == 29_792
    batch = loaded.train.gather(np.arange(8))
    losses = []
    for _ in range(20):
        trainable.accumulate(batch, 1 / trainable.count(batch))
        losses.append(float(trainable.apply(1e-2).loss))
    assert losses[0] == pytest.approx(np.log(256), abs=0.6)
    assert losses[-1] < 3.0


def test_model_settings_come_from_the_workload(text, tmp_path):
    workload = Workload(
        task=REFERENCE,
        sequence_length=16,
        model={"d_model": 32, "layers": 1, "heads": 2, "d_ff": 48},
        data=DataConfig(path=str(text)),
    )
    loaded = load(workload, tmp_path)
    trainable = loaded.framework.trainable(loaded.task, DeviceSettings(), OptimizerSettings())
    trainable.init(0)
    assert trainable.parameter_count() == 2 * 256 * 32 + 4 * 32**2 + 3 * 32 * 48 + 2 * 32 + 32


def test_importing_the_recipe_does_not_import_torch():
    code = "import sys, batchlab.recipes.quickstart; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
