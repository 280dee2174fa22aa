"""Memory and speed of the person's Trainer: a few whole steps, with the learning rate close to zero."""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchlab.core.protocols import Interrupted, MemoryBound, RunContext, RunResult
from batchlab.core.record import CapacityResult, Outcome, ThroughputResult
from batchlab.core.spec import CapacitySpec, DeviceSettings, ThroughputSpec
from batchlab.integrations.data_digest import positions
from batchlab.integrations.hf.evaluate import evaluate
from batchlab.integrations.hf.train import epochs_of, layout_arguments
from batchlab.integrations.hf.trainer import Trainers, optimizer_changes, require_data
from batchlab.runs.throughput import LEARNING_RATE, TIME_LIMIT, WARMUP_STEPS, OtherLoad
from batchlab.torch_ import memory

LENGTHS_LOOKED_AT = 2000
"""Samples among which the longest is searched."""

_bound: list[MemoryBound] = []
"""The bound of this process, which is set once, after a warm-up step."""


def sample_size(sample: Any) -> int:
    """Numbers in a sample: of all its arrays and lists together."""
    if isinstance(sample, Mapping):
        return sum(sample_size(value) for value in sample.values())
    if hasattr(sample, "numel"):
        return int(sample.numel())
    if isinstance(sample, list | tuple):
        return sum(sample_size(value) for value in sample)
    return 1


def longest(data: Any) -> int:
    """Index of the largest sample among those looked at."""
    looked_at = positions(len(data), LENGTHS_LOOKED_AT)
    return max(looked_at, key=lambda index: (sample_size(data[index]), -index))


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


def bound_memory(trainers: Trainers, spec: CapacitySpec | ThroughputSpec, folder: Path) -> MemoryBound:
    """Warm up with a model of its own, then take the baseline: what a process loads lazily belongs to no batch size."""
    if not _bound:
        small = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 1, "per_device_eval_batch_size": 2}
        device = spec.device.model_copy(update={"memory_limit": None})
        trainer = make_small(trainers, small, steps=2, device=device, folder=folder)
        trainer.train()
        evaluate(trainer, trainer.model_wrapped, 2)
        del trainer
        gc.collect()
        _bound.append(memory.bound(torch.device(spec.device.name), spec.device.memory_limit))
    return _bound[0]


def probe(trainers: Trainers, spec: CapacitySpec, context: RunContext) -> RunResult:
    """Train `spec.steps` steps on copies of the longest sample and evaluate once. OutOfMemory passes through."""
    folder = context.path / "trainer"
    bound = bound_memory(trainers, spec, folder)
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
    evaluate(trainer, trainer.model_wrapped, spec.evaluation_batch_size)
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


class _Steps(TrainerCallback):  # type: ignore[misc]
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
    bound_memory(trainers, spec, folder)
    changes = {**layout_arguments(spec.layout), **optimizer_changes(trainers.own, spec.optimizer)}
    trainer = make_small(trainers, changes, steps=10**7, device=spec.device, folder=folder)
    blocks = _Blocks(trainer, spec, context)
    trainer.add_callback(blocks)
    trainer.train()
    shutil.rmtree(folder, ignore_errors=True)
    reading = memory.read(torch.device(spec.device.name))
    rates = tuple(tokens / seconds for tokens, seconds in blocks.timed)
    result = ThroughputResult(
        tokens_per_second=statistics.median(rates),
        tokens_per_second_blocks=rates,
        step_seconds=spec.layout.tokens_per_step / statistics.median(rates),
        warmup_seconds=blocks.warmup_seconds,
        other_load=blocks.load.share() if spec.device.name == "cpu" else None,
        peak_bytes=reading.peak_bytes,
        measured=reading.measured,
        peak_in_use_bytes=reading.peak_in_use_bytes,
    )
    return RunResult(Outcome.COMPLETED, "", result)


class _Blocks(TrainerCallback):  # type: ignore[misc]
    """Times blocks of steps after WARMUP_STEPS and one step from which the length of a block is estimated."""

    def __init__(self, trainer: Trainer, spec: ThroughputSpec, context: RunContext) -> None:
        self._spec, self._context, self._epochs = spec, context, epochs_of(trainer)
        self._device = torch.device(spec.device.name)
        self._made, self._started, self._from = time.monotonic(), 0.0, 0
        self._steps_per_block = 0
        self.warmup_seconds = 0.0
        self.timed: list[tuple[int, float]] = []  # tokens and seconds of each block
        self.load = OtherLoad()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        if self._context.stop_requested():
            raise Interrupted
        if step < WARMUP_STEPS:
            return
        if step == WARMUP_STEPS:
            self._started = self._now()
            self.warmup_seconds = self._started - self._made
            return
        if step == WARMUP_STEPS + 1:
            estimate = self._now() - self._started
            self._steps_per_block = max(1, round(self._spec.block_seconds / max(estimate, 1e-9)))
            self.load = OtherLoad()
            self._begin(step)
            return
        if step - self._from < self._steps_per_block:
            return
        seconds = self._now() - self._started
        samples = self._epochs.samples_after(step) - self._epochs.samples_after(self._from)
        tokens = samples * self._spec.layout.sequence_length
        self.timed.append((tokens, seconds))
        self._context.progress(len(self.timed), self._spec.repeats, 0, None, tokens / seconds)
        late = time.monotonic() - self._made - self.warmup_seconds > TIME_LIMIT
        control.should_training_stop = late or len(self.timed) == self._spec.repeats
        self._begin(step)

    def _begin(self, step: int) -> None:
        self._started, self._from = self._now(), step

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.monotonic()
