"""What a person's Trainer trains: unit, sequence length, data, parameter groups, and settings of their arguments."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import torch
from transformers import Trainer

from batchlab.core.batch import Unit
from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome, TaskInfo
from batchlab.core.spec import InspectSpec
from batchlab.integrations.data_digest import positions
from batchlab.integrations.hf.measure import make_small
from batchlab.integrations.hf.trainer import Trainers, own_settings, same_data
from batchlab.integrations.optimizer_groups import described, family
from batchlab.runs.workload import code_files
from batchlab.torch_ import device as devices
from batchlab.torch_ import memory


def inspect(trainers: Trainers, spec: InspectSpec, context: RunContext) -> RunResult:
    """Describe the Trainer; trains nothing."""
    name = devices.resolve(spec.device.name)
    device = spec.device.model_copy(update={"name": name})
    trainer = make_small(trainers, {"learning_rate": 1.0}, steps=1, device=device, folder=context.path / "trainer")
    trainer.create_optimizer()
    ratios = [float(group["lr"]) for group in trainer.optimizer.param_groups]  # it was made with a rate of 1
    length = common_length(trainer)
    parameters = {parameter for parameter in trainer.model.parameters() if parameter.requires_grad}
    result = TaskInfo(
        unit=Unit.TOKENS if length else Unit.SAMPLES,
        sequence_length=length or 1,
        train_samples=len(trainer.train_dataset),
        valid_samples=len(trainer.eval_dataset),
        vocabulary=getattr(getattr(trainer.model, "config", None), "vocab_size", None),
        parameter_count=sum(parameter.numel() for parameter in parameters),
        optimizer_family=family(trainer.optimizer),
        integration="hf",
        own_optimizer=True,
        optimizer_groups=tuple(described(trainer.optimizer, ratios)),
        settings=own_settings(trainer, trainers.own),
        data_source=_source(trainer),
        data_digest=same_data(trainer, spec.workload, trainers.name),
        code=code_files(spec.workload.task),
        device=name,
        device_memory_bytes=memory.device_total(torch.device(name)),
    )
    shutil.rmtree(context.path / "trainer", ignore_errors=True)
    return RunResult(Outcome.COMPLETED, "", result)


def common_length(trainer: Trainer) -> int | None:
    """Tokens of a sample where all samples looked at have the same number of input_ids; None where they differ."""
    lengths: set[int] = set()
    for data in (trainer.train_dataset, trainer.eval_dataset):
        for index in positions(len(data)):
            sample = data[index]
            if not isinstance(sample, Mapping) or "input_ids" not in sample:
                return None
            lengths.add(len(sample["input_ids"]))
    return next(iter(lengths)) if len(lengths) == 1 else None


def _source(trainer: Trainer) -> str:
    train, held_out, collator = trainer.train_dataset, trainer.eval_dataset, trainer.data_collator
    name = getattr(collator, "__name__", type(collator).__name__)
    sizes = f"{len(train):,} training and {len(held_out):,} held-out samples"
    return f"{type(trainer).__name__} with {name}: {sizes}"
