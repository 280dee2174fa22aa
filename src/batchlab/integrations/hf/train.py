"""A training run in the person's Trainer, followed by a callback: rows, evaluations, checkpoints, the order of samples.

The Trainer logs where a row is due, so the loss it accumulates on the device is read no more often. At step 1 of a
warm-up its schedulers have a learning rate of 0, as they have without batchlab.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchlab.core.batch import BatchLayout
from batchlab.core.pairing import Pairing, weakest
from batchlab.core.protocols import Interrupted, RunContext, RunResult
from batchlab.core.record import Outcome, TrainResult
from batchlab.core.spec import TrainSpec
from batchlab.integrations.course import Course, Logged, StoppedEarly
from batchlab.integrations.epochs import Epochs, equal_micro_batch
from batchlab.integrations.hf import checkpoint
from batchlab.integrations.hf.evaluate import evaluate
from batchlab.integrations.hf.order import SampleOrder
from batchlab.integrations.hf.trainer import Trainers, optimizer_changes, require_data, same_data
from batchlab.integrations.schedules import to_transformers
from batchlab.runs.clock import SAVING_SHARE
from batchlab.runs.divergence import Diverged
from batchlab.torch_ import memory


def layout_arguments(layout: BatchLayout) -> dict[str, int]:
    """Micro-batch and accumulation of a global batch; a Trainer's micro-batches are all of one size."""
    micro = equal_micro_batch(layout.global_batch_size, layout.micro_batch_size)
    return {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": layout.global_batch_size // micro,
    }


def epochs_of(trainer: Trainer) -> Epochs:
    """How this Trainer goes through its data."""
    arguments = trainer.args
    return Epochs(
        len(trainer.train_dataset),
        arguments.per_device_train_batch_size,
        arguments.gradient_accumulation_steps,
        arguments.dataloader_drop_last,
    )


def train(trainers: Trainers, spec: TrainSpec, context: RunContext) -> RunResult:
    """Train for the spec's tokens, from its checkpoint if there is one.

    Where the last batch of an epoch is short, the run takes more steps, and may end up to one step beyond the budget.
    """
    layout, folder = spec.layout, context.path / "trainer"
    shutil.rmtree(folder, ignore_errors=True)
    split = layout_arguments(layout)
    samples = spec.token_budget // layout.sequence_length

    def arguments(steps: int) -> dict[str, Any]:
        return {
            **split,
            **optimizer_changes(trainers.own, spec.optimizer),
            **to_transformers(spec.schedule, steps),
            "per_device_eval_batch_size": spec.evaluation_batch_size,
            "learning_rate": spec.learning_rate,
            "max_steps": steps,
            "warmup_steps": math.ceil(round(spec.warmup_tokens / layout.tokens_per_step, 9)),
            "logging_strategy": "steps",
            "logging_steps": 10**9,  # the callback asks for logs
        }

    trainer = trainers.make(arguments(spec.steps), seed=spec.seed, device=spec.device, folder=folder)
    require_data(trainer, trainers.name)
    same_data(trainer, spec.workload, trainers.name)
    steps = epochs_of(trainer).steps_for(samples)
    for name, value in arguments(steps).items():
        setattr(trainer.args, name, value)
    order = SampleOrder(trainer)
    following = _Following(trainer, spec, context, steps, order)
    trainer.add_callback(following)
    resume = following.resume(folder)
    memory.restart_peak(torch.device(spec.device.name))
    try:
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    except Diverged as found:
        context.row(found.row(layout.tokens_per_step))
        return RunResult(Outcome.DIVERGED, str(found), following.result(found.step))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    done = trainer.state.global_step
    if done < steps:
        stopped = StoppedEarly(f"The Trainer stopped at step {done:,} of {steps:,}.")
        return RunResult(Outcome.FAILED, str(stopped), following.result(done))
    return RunResult(Outcome.COMPLETED, "", following.result(done), following.pairing())


class _Following(TrainerCallback):
    """Follows one run: decides at every step what is due, and does it when the Trainer logs and saves."""

    def __init__(self, trainer: Trainer, spec: TrainSpec, context: RunContext, steps: int, order: SampleOrder) -> None:
        self._trainer, self._spec, self._context, self._steps = trainer, spec, context, steps
        self._order, self._order_before = order, list[Pairing]()
        self._epochs = epochs_of(trainer)
        self._device = torch.device(spec.device.name)
        self._course = Course.begin(spec, steps, spec.optimizer.config.grad_clip)
        self._row_every = max(1, steps // spec.log_points)
        self._logged = self._first = 0
        self._lap = self._saved = time.monotonic()
        self._saving = 0.0
        self._stopping = self._evaluation_due = False

    def resume(self, folder: Path) -> Path | None:
        """The checkpoint folder to resume from; None to start afresh."""
        kept = self._context.load_checkpoint()
        if kept is None:
            return None
        header, state = kept
        self._course = Course.resume(header["course"])
        self._order_before = [Pairing(shown) for shown in header["order"]]
        self._logged = self._first = int(header["step"])
        return checkpoint.restore(state, folder)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._lap = self._saved = self._now()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        self._stopping = self._context.stop_requested()
        self._evaluation_due = step == self._steps or self._evaluations(step) > self._evaluations(step - 1)
        tail = self._course.tail_begins
        row_due = step % self._row_every == 0 or step in (tail, self._steps)
        # A save logs, and the Trainer rounds the mean that it logs. In the tail both are due at the same steps always.
        may_save = step < self._steps and (step <= tail or row_due)
        saving = self._stopping or (may_save and self._checkpoint_due())
        control.should_log = row_due or self._evaluation_due or saving
        control.should_save = saving

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        model: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        step = state.global_step
        if logs is None or "loss" not in logs or step <= self._logged:
            return
        now = self._now()
        logged = Logged(
            step=step,
            steps=step - self._logged,
            samples=self._epochs.samples_after(step),
            seconds=now - self._lap,
            train_loss=logs["loss"],
            grad_norm=logs.get("grad_norm"),
            learning_rate=logs["learning_rate"],
        )
        row = self._course.log(logged, memory.read(self._device))
        self._logged, self._lap = step, now
        self._context.row(row)
        self._context.progress(step, self._steps, row.tokens, row.train_loss, row.tokens_per_second)
        if self._evaluation_due and model is not None:
            found = evaluate(self._trainer, model, self._spec.evaluation_samples, self._spec.workload.metric)
            self._context.row(self._course.evaluated(found, step))
            self._lap = self._now()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The Trainer has just written its checkpoint folder."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        header = {
            "step": state.global_step,
            "course": self._course.saved(),
            "order": [*self._order_before, self._shown(state.global_step)],
        }
        self._context.save_checkpoint(header, checkpoint.writer(folder))
        shutil.rmtree(folder)
        now = self._now()
        self._saving, self._saved, self._lap = now - self._lap, now, now
        if self._stopping:
            raise Interrupted

    def pairing(self) -> Pairing:
        """What is known of the order of the samples of the whole run."""
        return weakest([*self._order_before, self._shown(self._steps)])

    def result(self, step: int) -> TrainResult:
        """The run's result after `step` steps."""
        reading = memory.read(self._device)
        return self._course.result(self._spec, step, self._epochs.samples, reading, self._context.repaired_lines)

    def _shown(self, step: int) -> Pairing:
        first = self._first // self._epochs.steps
        return self._order.pairing(first, self._epochs.samples_after(step) - first * self._epochs.used)

    def _evaluations(self, step: int) -> int:
        """Evaluations that are due by the end of a step."""
        return self._epochs.samples_after(step) * self._spec.layout.sequence_length // self._spec.evaluation_interval

    def _checkpoint_due(self) -> bool:
        least = max(self._spec.checkpoint_seconds, self._saving * (1 / SAVING_SHARE - 1))
        return time.monotonic() - self._saved >= least

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.monotonic()
