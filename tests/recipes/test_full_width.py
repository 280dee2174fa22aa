"""Each published model at its full width takes an optimizer step here, on a short sequence."""

from __future__ import annotations

import dataclasses

import numpy as np
import psutil
import pytest

from batchlab.core.experiment import build_experiment
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.recipes import recipe
from batchlab.study.task_source import resolve_task
from batchlab.torch_.framework import TorchFramework

pytestmark = pytest.mark.slow

PARAMETERS = {"tinystories": 22_696_448, "wikitext2": 162_304_084, "elman": 386_340_864}
NEEDED = 6 * 2**30
TIME = 8


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_step_at_full_width(name, tmp_path):
    if psutil.virtual_memory().available < NEEDED:
        pytest.skip(f"less than {NEEDED // 2**30} GiB of memory are free")
    experiment = build_experiment(resolve_task(name))
    workload = Workload(task=experiment.task, sequence_length=TIME, model=experiment.model, data=experiment.data)
    task = recipe(name).task(workload, tmp_path)
    # Weights, gradients and both of Adam's moments in bfloat16, as the published E1 was run: 8 bytes per parameter.
    narrow = dataclasses.replace(task, model=lambda: task.model().bfloat16())
    framework, device = TorchFramework(), DeviceSettings()
    framework.start(device, seed=0)
    trainable = framework.trainable(narrow, device, OptimizerSettings(config=experiment.optimizer))
    trainable.init(0)
    assert trainable.parameter_count() == PARAMETERS[name]
    tokens = np.frombuffer(b"def main():\n    pass\n", dtype=np.uint8)[: TIME + 1].astype(np.int64)
    batch = tokens[None, :-1], tokens[None, 1:]
    losses = []
    for _ in range(2):
        trainable.accumulate(batch, 1 / TIME)
        losses.append(float(trainable.apply(1e-4).loss))
    assert losses[0] == pytest.approx(np.log(experiment.data.vocabulary), rel=0.2)
    assert losses[1] < losses[0]
