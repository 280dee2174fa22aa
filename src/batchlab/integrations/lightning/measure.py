"""Memory and speed of a LightningModule in Lightning's Trainer: a few whole steps, the learning rate close to zero."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

from batchlab.core.protocols import Interrupted, MemoryBound, RunContext, RunResult
from batchlab.core.record import CapacityResult, Outcome
from batchlab.core.spec import CapacitySpec, DeviceSettings, OptimizerSettings, ThroughputSpec
from batchlab.integrations.lightning.evaluate import evaluate
from batchlab.integrations.lightning.made import Made, Modules, OneOptimizer, trainer_arguments
from batchlab.integrations.lightning.train import epochs_of
from batchlab.integrations.probing import bound_memory, longest, waiting_for
from batchlab.integrations.timing import BlockTimer
from batchlab.runs.throughput import LEARNING_RATE
from batchlab.torch_ import memory

StepEnded = Callable[[int], bool]
"""Takes the number of a step that has ended, from 1; whether the Trainer should stop."""


def fit(
    made: Made,
    loader: DataLoader[Any],
    device: DeviceSettings,
    optimizer: OptimizerSettings,
    *,
    steps: int,
    grad_accum_steps: int,
    folder: Path,
    step_ended: StepEnded = lambda step: False,
    learning_rate: float = LEARNING_RATE,
    before_step: Callable[[], None] = lambda: None,
) -> OneOptimizer:
    """Train a few steps at a constant learning rate."""
    own = OneOptimizer(made, optimizer)
    trainer = lightning.Trainer(
        **trainer_arguments(
            device,
            steps=steps,
            grad_accum_steps=grad_accum_steps,
            grad_clip=optimizer.config.grad_clip,
            folder=folder,
        ),
        callbacks=[_Steps(own, learning_rate, step_ended, before_step)],
    )
    trainer.fit(made.module, loader)
    return own


class _Steps(lightning.Callback):
    def __init__(
        self, own: OneOptimizer, learning_rate: float, step_ended: StepEnded, before_step: Callable[[], None]
    ) -> None:
        self._own, self._rate, self._step_ended, self._before_step = own, learning_rate, step_ended, before_step
        self._last = 0

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self._own.set_learning_rate(self._rate)
        self._before_step()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if trainer.global_step > self._last:
            self._last = trainer.global_step
            trainer.should_stop = self._step_ended(self._last) or trainer.should_stop


def _bound(modules: Modules, spec: CapacitySpec | ThroughputSpec, folder: Path) -> MemoryBound:
    def warm_up(device: DeviceSettings) -> None:
        made = modules.make(0)
        loader, _ = made.loader(2, 0)
        fit(made, loader, device, spec.optimizer, steps=2, grad_accum_steps=1, folder=folder)
        evaluate(made.module, made.held_out_loader(2, 2), made.name, spec.workload.metric)

    return bound_memory(spec, warm_up)


def probe(modules: Modules, spec: CapacitySpec, context: RunContext) -> RunResult:
    """Train `spec.steps` steps on copies of the longest sample and evaluate once. OutOfMemory passes through."""
    folder = context.path / "trainer"
    bound = _bound(modules, spec, folder)
    micro, accum = spec.micro_batch_size, spec.grad_accum_steps
    made = modules.make(0)
    loader = made.of_one_sample(longest(made.train.dataset), micro, accum * spec.steps)
    times = [time.monotonic()]

    def step_ended(step: int) -> bool:
        times.append(time.monotonic())
        context.progress(step, spec.steps, 0, None, None)
        if context.stop_requested():
            raise Interrupted
        return False

    fit(
        made,
        loader,
        spec.device,
        spec.optimizer,
        steps=spec.steps,
        grad_accum_steps=accum,
        folder=folder,
        step_ended=step_ended,
    )
    size = spec.evaluation_batch_size
    held_out = made.of_one_sample(longest(made.held_out.dataset), size, 1, held_out=True)
    evaluate(made.module, held_out, made.name, spec.workload.metric)
    reading = memory.read(torch.device(spec.device.name))
    shutil.rmtree(folder, ignore_errors=True)
    result = CapacityResult(
        micro_batch_size=micro,
        fits=True,
        steps=spec.steps,
        baseline_bytes=bound.baseline_bytes,
        available_bytes=bound.available_bytes,
        peak_bytes=reading.peak_bytes,
        measured=reading.measured,
        peak_in_use_bytes=reading.peak_in_use_bytes,
        seconds_per_sample=(times[-1] - times[-2]) / (micro * accum),
    )
    return RunResult(Outcome.COMPLETED, "", result)


def measure(modules: Modules, spec: ThroughputSpec, context: RunContext) -> RunResult:
    """Time `spec.repeats` blocks of whole steps; only the ends of a block wait for the device."""
    folder = context.path / "trainer"
    _bound(modules, spec, folder)
    made = modules.make(0)
    epochs = epochs_of(made, spec.layout.global_batch_size, spec.layout.micro_batch_size)
    loader, _ = made.loader(epochs.micro_batch_size, 0)
    timer = BlockTimer(spec, context, epochs, waiting_for(spec.device.name))
    fit(
        made,
        loader,
        spec.device,
        spec.optimizer,
        steps=-1,
        grad_accum_steps=epochs.grad_accum_steps,
        folder=folder,
        step_ended=timer.step_ended,
    )
    shutil.rmtree(folder, ignore_errors=True)
    return timer.result(memory.read(torch.device(spec.device.name)))
