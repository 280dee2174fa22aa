"""A training run in Lightning's Trainer, followed by a callback. It is never resumed: Lightning begins an epoch's order
again after a restart, so the run would see other samples.
"""

from __future__ import annotations

import shutil
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Interrupted, RunContext, RunResult
from batchlab.core.record import Outcome, TrainResult
from batchlab.core.schedule import Schedule
from batchlab.core.spec import TrainSpec
from batchlab.integrations.course import Course, Logged, StoppedEarly
from batchlab.integrations.epochs import Epochs, equal_micro_batch
from batchlab.integrations.lightning.evaluate import evaluate
from batchlab.integrations.lightning.made import Made, Modules, OneOptimizer, trainer_arguments
from batchlab.integrations.probing import waiting_for
from batchlab.runs.divergence import Diverged
from batchlab.torch_ import memory


def epochs_of(made: Made, global_batch_size: int, most: int) -> Epochs:
    """How the Trainer goes through the data with micro-batches of at most `most` samples; they are all of one size."""
    micro = equal_micro_batch(global_batch_size, most)
    return Epochs(len(made.train_data), micro, global_batch_size // micro, made.train.drop_last)


class RecordingSampler:
    """Remembers which samples it has given, over all epochs."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.given = array("q")

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        for index in self._sampler:
            self.given.append(index)
            yield index


def train(modules: Modules, spec: TrainSpec, context: RunContext) -> RunResult:
    """Train for the spec's tokens, from the beginning.

    Where the last batch of an epoch is short, the run takes more steps, and may end up to one step beyond the budget.
    """
    context.load_checkpoint()  # there is none; this clears the metrics of an attempt that was stopped
    layout, folder = spec.layout, context.path / "trainer"
    made = modules.make(spec.seed)
    modules.same_data(made)
    epochs = epochs_of(made, layout.global_batch_size, layout.micro_batch_size)
    samples = spec.token_budget // layout.sequence_length
    steps = epochs.steps_for(samples)
    _, sampler = made.loader(epochs.micro_batch_size, spec.seed)
    recording = RecordingSampler(sampler)
    loader = _with_sampler(made, epochs, recording)
    optimizer = OneOptimizer(made, spec.optimizer)
    following = _Following(made, spec, context, epochs, steps, optimizer)
    trainer = make_trainer(spec, folder, epochs, steps, following)
    memory.restart_peak(torch.device(spec.device.name))
    try:
        trainer.fit(made.module, loader)
    except Diverged as found:
        context.row(found.row(layout.tokens_per_step))
        return RunResult(Outcome.DIVERGED, str(found), following.result(found.step))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    done = trainer.global_step
    if done < steps:
        stopped = StoppedEarly(f"The Trainer stopped at step {done:,} of {steps:,}.")
        return RunResult(Outcome.FAILED, str(stopped), following.result(done))
    pairing = _pairing(made, recording, spec.seed, epochs.samples_after(steps))
    return RunResult(Outcome.COMPLETED, "", following.result(done), pairing)


def make_trainer(
    spec: TrainSpec, folder: Path, epochs: Epochs, steps: int, callback: lightning.Callback
) -> lightning.Trainer:
    """Lightning's Trainer for one run."""
    arguments = trainer_arguments(
        spec.device,
        steps=steps,
        grad_accum_steps=epochs.grad_accum_steps,
        grad_clip=spec.optimizer.config.grad_clip,
        folder=folder,
    )
    return lightning.Trainer(**arguments, callbacks=[callback])


def _with_sampler(made: Made, epochs: Epochs, sampler: Any) -> DataLoader[Any]:
    loader, _ = made.loader(epochs.micro_batch_size, 0)
    batches: Any = loader.batch_sampler
    batches.sampler = sampler
    return loader


def _pairing(made: Made, recording: RecordingSampler, seed: int, samples: int) -> Pairing:
    """VERIFIED where the recorded order is that of batch size 1 with this seed, sample by sample."""
    loader, _ = made.loader(1, seed)
    batches: Any = loader.batch_sampler
    expected = array("q")
    while len(expected) < samples:
        expected.extend(index for batch in batches for index in batch)
    same = recording.given[:samples] == expected[:samples]
    return Pairing.VERIFIED if same and not made.train.drop_last else Pairing.NONE


class _Following(lightning.Callback):
    """Follows one run: sets the learning rate of every step, and writes rows and evaluations where they are due."""

    def __init__(
        self, made: Made, spec: TrainSpec, context: RunContext, epochs: Epochs, steps: int, optimizer: OneOptimizer
    ) -> None:
        self._made, self._spec, self._context, self._epochs, self._steps = made, spec, context, epochs, steps
        self._optimizer = optimizer
        layout = spec.layout
        budget = epochs.samples_after(steps) * layout.sequence_length
        self._schedule = Schedule(spec.schedule, spec.learning_rate, budget, layout.tokens_per_step)
        self._course = Course.begin(spec, steps, spec.optimizer.config.grad_clip)
        self._row_every = max(1, steps // spec.log_points)
        self._held_out = made.held_out_loader(spec.evaluation_batch_size, spec.evaluation_samples)
        self._device = torch.device(spec.device.name)
        self._wait = waiting_for(spec.device.name)
        self._losses: list[Any] = []  # of the micro-batches since the last row, on the device
        self._norm: Any = None
        self._rate = 0.0
        self._logged = 0
        self._lap = time.monotonic()

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._lap = self._now()

    def on_before_optimizer_step(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Gradients are whole and not yet clipped."""
        step = trainer.global_step
        self._rate = self._schedule.mean(self._tokens(step), self._tokens(step + 1))
        self._optimizer.set_learning_rate(self._rate)
        if self._row_due(step + 1):
            gradients = [one.grad for one in pl_module.parameters() if one.grad is not None]
            self._norm = torch.nn.utils.get_total_norm(gradients)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        step = trainer.global_step
        if trainer.fit_loop._should_accumulate() or step <= self._logged:
            return
        stopping = self._context.stop_requested()
        if stopping:
            raise Interrupted
        evaluation_due = step == self._steps or self._evaluations(step) > self._evaluations(step - 1)
        if not (self._row_due(step) or evaluation_due):
            return
        self._log(step)
        if evaluation_due:
            found = evaluate(pl_module, self._held_out, self._made.name, self._spec.workload.metric)
            self._context.row(self._course.evaluated(found, step))
            self._lap = self._now()

    def _log(self, step: int) -> None:
        now, steps = self._now(), step - self._logged
        logged = Logged(
            step=step,
            steps=steps,
            samples=self._epochs.samples_after(step),
            seconds=now - self._lap,
            train_loss=float(torch.stack(self._losses).sum()) / steps,
            grad_norm=None if self._norm is None else float(self._norm),
            learning_rate=self._rate,
        )
        row = self._course.log(logged, memory.read(self._device))
        self._losses, self._norm, self._logged, self._lap = [], None, step, now
        self._context.row(row)
        self._context.progress(step, self._steps, row.tokens, row.train_loss, row.tokens_per_second)

    def result(self, step: int) -> TrainResult:
        """The run's result after `step` steps."""
        reading = memory.read(self._device)
        return self._course.result(self._spec, step, self._epochs.samples, reading, self._context.repaired_lines)

    def _row_due(self, step: int) -> bool:
        return step % self._row_every == 0 or step == self._steps

    def _tokens(self, step: int) -> int:
        return self._epochs.samples_after(step) * self._spec.layout.sequence_length

    def _evaluations(self, step: int) -> int:
        return self._tokens(step) // self._spec.evaluation_interval

    def _now(self) -> float:
        self._wait()
        return time.monotonic()
