"""Memory and speed of the person's Trainer: a few whole steps, with the learning rate close to zero."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchlab.core.protocols import Interrupted, MemoryBound, RunContext, RunResult
from batchlab.core.record import CapacityResult, Outcome
from batchlab.core.spec import CapacitySpec, DeviceSettings, ThroughputSpec
from batchlab.integrations.hf.evaluate import evaluate, predict
from batchlab.integrations.hf.train import epochs_of, layout_arguments
from batchlab.integrations.hf.trainer import Trainers, optimizer_changes, require_data
from batchlab.integrations.probing import bound_memory, longest, waiting_for
from batchlab.integrations.timing import BlockTimer
from batchlab.runs.throughput import LEARNING_RATE
from batchlab.torch_ import memory


def repeated(data: Any, index: int, times: int) -> Any:
    """A data set that holds one sample so many times."""
    return data.select([index] * times) if hasattr(data, "select") else Subset(data, [index] * times)


def make_small(
    trainers: Trainers, changes: Mapping[str, Any], *, steps: int, device: DeviceSettings, folder: Path, seed: int = 0
) -> Trainer:
    """A Trainer for a few steps at a tiny learning rate, with data that was found usable."""
    arguments = {"learning_rate": LEARNING_RATE, "max_steps": steps, "lr_scheduler_type": "constant", **changes}
    arguments |= {"lr_scheduler_kwargs": None, "warmup_steps": 0}
    trainer = trainers.make(arguments, seed=seed, device=device, folder=folder)
    require_data(trainer, trainers.name)
    return trainer


def _bound(trainers: Trainers, spec: CapacitySpec | ThroughputSpec, folder: Path) -> MemoryBound:
    def warm_up(device: DeviceSettings) -> None:
        small = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "per_device_eval_batch_size": 2}
        trainer = make_small(trainers, small, steps=2, device=device, folder=folder)
        trainer.train()
        evaluate(trainer, trainer.model_wrapped, 2)

    return bound_memory(spec, warm_up)


def probe(trainers: Trainers, spec: CapacitySpec, context: RunContext) -> RunResult:
    """Train `spec.steps` steps on copies of the longest sample and evaluate once. OutOfMemory passes through."""
    folder = context.path / "trainer"
    bound = _bound(trainers, spec, folder)
    micro = spec.micro_batch_size
    changes = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": spec.grad_accum_steps,
        "per_device_eval_batch_size": spec.evaluation_batch_size,
        **optimizer_changes(trainers.own, spec.optimizer),
    }
    trainer = make_small(trainers, changes, steps=spec.steps, device=spec.device, folder=folder)
    train, held_out = trainer.train_dataset, trainer.eval_dataset
    trainer.train_dataset = repeated(train, longest(train), micro * spec.grad_accum_steps * spec.steps)
    trainer.eval_dataset = repeated(held_out, longest(held_out), spec.evaluation_batch_size)
    timer = _Steps(context, spec.steps)
    trainer.add_callback(timer)
    loss = float(trainer.train().training_loss)
    if spec.workload.metric is None:
        evaluate(trainer, trainer.model_wrapped, spec.evaluation_batch_size)
    else:
        predict(trainer, spec.evaluation_batch_size)
    reading = memory.read(torch.device(spec.device.name))
    shutil.rmtree(folder, ignore_errors=True)
    result = CapacityResult(
        micro_batch_size=micro,
        fits=True,
        steps=spec.steps,
        final_train_loss=loss,
        baseline_bytes=bound.baseline_bytes,
        available_bytes=bound.available_bytes,
        peak_bytes=reading.peak_bytes,
        measured=reading.measured,
        peak_in_use_bytes=reading.peak_in_use_bytes,
        seconds_per_sample=timer.last_step_seconds / (micro * spec.grad_accum_steps),
    )
    return RunResult(Outcome.COMPLETED, "", result)


class _Steps(TrainerCallback):
    """Tells how far a short run is, and times its last step."""

    def __init__(self, context: RunContext, steps: int) -> None:
        self._context, self._steps = context, steps
        self._begun = time.monotonic()
        self.last_step_seconds = 0.0

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        now = time.monotonic()
        self.last_step_seconds, self._begun = now - self._begun, now
        self._context.progress(state.global_step, self._steps, 0, None, None)
        if self._context.stop_requested():
            raise Interrupted


def measure(trainers: Trainers, spec: ThroughputSpec, context: RunContext) -> RunResult:
    """Time `spec.repeats` blocks of whole steps; only the ends of a block wait for the device."""
    folder = context.path / "trainer"
    _bound(trainers, spec, folder)
    changes = {**layout_arguments(spec.layout), **optimizer_changes(trainers.own, spec.optimizer)}
    trainer = make_small(trainers, changes, steps=10**7, device=spec.device, folder=folder)
    timer = BlockTimer(spec, context, epochs_of(trainer), waiting_for(spec.device.name))
    trainer.add_callback(_Blocks(timer))
    trainer.train()
    shutil.rmtree(folder, ignore_errors=True)
    return timer.result(memory.read(torch.device(spec.device.name)))


class _Blocks(TrainerCallback):
    def __init__(self, timer: BlockTimer) -> None:
        self._timer = timer

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop = self._timer.step_ended(state.global_step)
