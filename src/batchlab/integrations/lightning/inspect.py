"""What a person's LightningModule trains: its data, parameter groups, and the clipping and precision of its Trainer."""

from __future__ import annotations

from typing import Any

import torch

from batchlab.core.batch import Unit
from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome, TaskInfo
from batchlab.core.spec import InspectSpec
from batchlab.integrations.lightning.made import Made, Modules, OneOptimizer
from batchlab.integrations.lightning.monitored import monitored
from batchlab.integrations.optimizer_groups import described, family
from batchlab.runs.workload import code_files
from batchlab.torch_ import device as devices
from batchlab.torch_ import memory


def inspect(modules: Modules, spec: InspectSpec, context: RunContext) -> RunResult:
    """Describe the module; trains nothing."""
    name = devices.resolve(spec.device.name)
    made = modules.make(0)
    own = OneOptimizer(made, spec.optimizer)
    optimizer = own.configure()
    parameters = [parameter for parameter in made.module.parameters() if parameter.requires_grad]
    result = TaskInfo(
        unit=Unit.SAMPLES,
        sequence_length=1,
        train_samples=len(made.train_data),
        valid_samples=len(made.held_out_data),
        parameter_count=sum(parameter.numel() for parameter in parameters),
        optimizer_family=family(optimizer),
        integration="lightning",
        own_optimizer=True,
        optimizer_groups=tuple(described(optimizer, own.ratios)),
        settings=_settings(made),
        data_source=_source(made),
        data_digest=modules.same_data(made),
        code=code_files(spec.workload.task),
        device=name,
        device_memory_bytes=memory.device_total(torch.device(name)),
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _settings(made: Made) -> dict[str, Any]:
    """Those of the Trainer that `make` returns, else Lightning's defaults: no clipping, fp32, judged by the loss."""
    trainer = made.trainer
    clip = None if trainer is None else trainer.gradient_clip_val
    bf16 = trainer is not None and str(trainer.precision).startswith("bf16")
    step = (made.train.batch_size or 1) * (1 if trainer is None else trainer.accumulate_grad_batches)
    return {
        "optimizer": {"grad_clip": clip or "off", "reference_batch_size": step},
        "device": {"precision": "bf16" if bf16 else "fp32"},
        "evaluation": monitored(trainer),
    }


def _source(made: Made) -> str:
    sizes = f"{len(made.train_data):,} training and {len(made.held_out_data):,} held-out samples"
    return f"loaders of {type(made.module).__name__}: {sizes}"
