"""`batchlab train PLAN` with torch on two processes, stopped and begun again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import AcrossBatch, OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.plan.distributed import distributed_config
from batchlab.plan.training_plan import (
    BatchConfiguration,
    HardwareCalibration,
    MadeFrom,
    OptimizerPlan,
    PerformanceTargets,
    PlannedTask,
    TrainingPlan,
)

pytestmark = pytest.mark.slow

TASK = """
import time
import numpy as np
import torch.nn.functional as F
from torch import nn
import batchlab

random = np.random.default_rng(0)
data = [(random.normal(size=(n, 6)), random.integers(0, 3, n)) for n in (256, 64)]


def loss(model, x, y):
    time.sleep(0.01)
    return F.cross_entropy(model(x), y)


task = batchlab.task(
    model=lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double(),
    loss=loss, train=data[0], valid=data[1],
)
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(TASK)
    layout = BatchLayout(global_batch_size=7, micro_batch_size=4, data_parallel_size=2)
    made = TrainingPlan(
        made_from=MadeFrom(study="mine", run_ids=()),
        batch_configuration=BatchConfiguration(
            micro_batch_size=4,
            per_gpu_batch_size=4,
            grad_accum_steps=layout.grad_accum_steps,
            gradient_accumulation_steps=layout.grad_accum_steps,
            data_parallel_size=2,
            global_batch_size=7,
            total_batch_size=7,
            sequence_length=1,
            unit=Unit.SAMPLES,
            tokens_per_step=7,
            learning_rate=1e-2,
            warmup_tokens=70,
            warmup_steps=10,
            token_budget=2100,
            steps=300,
            schedule=ScheduleConfig(),
            optimizer=OptimizerPlan(name="adamw", weight_decay=0.1, grad_clip=1.0, across_batch=AcrossBatch.FIXED),
            precision="fp32",
            compile="off",
        ),
        hardware_calibration=HardwareCalibration(
            measured_performance={}, workload_distribution={"worker-0": 0.5, "worker-1": 0.5}
        ),
        performance_targets=PerformanceTargets(),
        task=PlannedTask(
            workload=Workload(
                task=TaskReference(kind="file", target=str(tmp_path / "mine.py")),
                unit=Unit.SAMPLES,
                framework="torch",
            ),
            optimizer=OptimizerSettings(config=OptimizerConfig()),
            device=DeviceSettings(),
            evaluation_points=4,
            evaluation_samples=64,
            evaluation_batch_size=16,
        ),
        distributed_config=distributed_config(1, 2, device="cpu", trains=True),
        provenance={},
        unknown=(),
    )
    path = tmp_path / "training_plan.json"
    path.write_text(made.model_dump_json())
    return path


def command(plan: Path, out: str) -> list[str]:
    return ["-m", "batchlab", "train", str(plan), "--out", str(plan.parent / out), "--json"]


def test_a_stopped_run_goes_on_and_its_weights_are_written(plan: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    stopped = subprocess.Popen([sys.executable, *command(plan, "run")], env=environment, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list(plan.parent.glob("run/runs/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(120) == 130
    assert list(plan.parent.glob("run/runs/*/checkpoint/state"))

    words = [sys.executable, *command(plan, "run")]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)["record"]["result"]
    assert (result["resumed"], result["steps"]) == (1, 300)
    from safetensors.torch import load_file

    weights = load_file(plan.parent / "run" / "weights.safetensors")
    assert set(weights) == {"0.weight", "0.bias", "2.weight", "2.bias"}
