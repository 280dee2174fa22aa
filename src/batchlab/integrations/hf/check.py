"""Tests the person's Trainer before a sweep over it, by two training steps."""

from __future__ import annotations

import shutil
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome
from batchlab.core.spec import CheckSpec
from batchlab.integrations.hf.evaluate import evaluate
from batchlab.integrations.hf.measure import make_small
from batchlab.integrations.hf.trainer import Trainers
from batchlab.integrations.one_step import OneStep, check_steps, without_dropout
from batchlab.runs.check import SAMPLES


def check(trainers: Trainers, spec: CheckSpec, context: RunContext) -> RunResult:
    """Run every item. OutOfMemory passes through."""
    folder, made = context.path / "trainer", list[Trainer]()

    def make_step(parts: int, learning_rate: float) -> OneStep:
        changes = {
            "per_device_train_batch_size": SAMPLES // parts,
            "gradient_accumulation_steps": parts,
            "per_device_eval_batch_size": SAMPLES,
            "learning_rate": learning_rate,
            "max_grad_norm": 0.0,
        }
        trainer = make_small(trainers, changes, steps=1, device=spec.device, folder=folder)
        made[:] = [trainer]
        without_dropout(trainer.model)
        watching = _Watching(trainer)
        trainer.add_callback(watching)
        trainer.train()
        return watching.found

    found = check_steps(
        make_step,
        spec.device.precision,
        lambda: made[0].train_dataset,
        lambda: made[0].eval_dataset,
        spec.largest_batch,
    )
    shutil.rmtree(folder, ignore_errors=True)
    return RunResult(Outcome.COMPLETED, "", found)


class _Watching(TrainerCallback):
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.found = OneStep()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        assert model is not None
        assert optimizer is not None
        self.found.read_start(model)
        # "lr" is scheduled; what the optimizer was built with is in "initial_lr".
        self.found.learning_rates = tuple(float(g.get("initial_lr", g["lr"])) for g in optimizer.param_groups)
        self.found.losses = (
            evaluate(self._trainer, model, SAMPLES).loss,
            evaluate(self._trainer, model, SAMPLES).loss,
        )

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        assert model is not None
        self.found.read_gradients(model)
