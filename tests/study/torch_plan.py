"""A training plan for torch on two processes of this machine, for tests of what starts it."""

from __future__ import annotations

from pathlib import Path

from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import AcrossBatch, OptimizerConfig, ScheduleConfig, TaskReference
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Workload
from batchlab.plan.distributed import distributed_config
from batchlab.plan.hardware import HardwareCalibration
from batchlab.plan.training_plan import (
    BatchConfiguration,
    MadeFrom,
    OptimizerPlan,
    PerformanceTargets,
    PlannedTask,
    TrainingPlan,
)

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


def write_plan(folder: Path) -> Path:
    """A task in a file, and its plan: 7 samples on two processes, 300 steps."""
    (folder / "mine.py").write_text(TASK)
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
                task=TaskReference(kind="file", target=str(folder / "mine.py")),
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
    path = folder / "training_plan.json"
    path.write_text(made.model_dump_json())
    return path
