"""Tests the person's Trainer before a sweep over it by two training steps: of one micro-batch, and of its two halves.

The second has the same seed and twice the learning rate. Dropout is off in both.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from batchlab.core.check import (
    CheckResult,
    DataSizeFinding,
    EvaluationFinding,
    GradientFinding,
    LearningRateFinding,
    OverlapFinding,
    SeedFinding,
    SplittingFinding,
    StartLoss,
)
from batchlab.core.protocols import RunContext, RunResult
from batchlab.core.record import Outcome
from batchlab.core.spec import CheckSpec
from batchlab.integrations.data_digest import content_digest, positions
from batchlab.integrations.hf.evaluate import evaluate
from batchlab.integrations.hf.measure import make_small
from batchlab.integrations.hf.trainer import Trainers
from batchlab.runs.bench import Verdict
from batchlab.runs.check import LEAKED, SAMPLES, Items
from batchlab.runs.throughput import LEARNING_RATE

SEARCHED = 20_000
"""Training samples among which held-out ones are searched."""


@dataclass(slots=True)
class _Step:
    """What one training step showed. Tensors are copies on the host."""

    samples: int
    losses: tuple[float, float] = (math.nan, math.nan)  # of the held-out samples before training, evaluated twice
    start: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    without_gradient: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = ()
    repeats: bool = True
    moved: bool = False


def check(trainers: Trainers, spec: CheckSpec, context: RunContext) -> RunResult:
    """Run every item. OutOfMemory passes through where not even two samples fit."""
    folder, items = context.path / "trainer", Items()
    whole = partial(_one_step, trainers, spec, folder, parts=1, learning_rate=LEARNING_RATE)
    halves = partial(_one_step, trainers, spec, folder, parts=2, learning_rate=2 * LEARNING_RATE)
    found: list[_Step] = []

    def first_step() -> Verdict:
        found.extend((whole(), halves()))
        loss = found[0].losses[0]
        if not math.isfinite(loss):
            return "fail", StartLoss(found="not_finite", loss=loss)
        return "ok", StartLoss(found="finite", loss=loss)

    mixes = False
    if items.add("loss", first_step) == "ok":
        one, two = found
        items.add("splitting", lambda: _splitting(one, two, spec.device.precision))
        mixes = getattr(items.found[-1].finding, "found", "") == "mixes"
        items.add("seeds", lambda: _seeds(one, two))
        items.add("learning rate", lambda: _learning_rate(one, two))
        items.add("evaluation", lambda: _evaluation(one))
        items.add("gradients", lambda: _gradients(one))
        trainer = make_small(trainers, {}, steps=1, device=spec.device, folder=folder)
        items.add("held-out data", lambda: _overlap(trainer))
        items.add("data size", lambda: _sizes(trainer, spec.largest_batch))
    shutil.rmtree(folder, ignore_errors=True)
    return RunResult(Outcome.COMPLETED, "", CheckResult(items=tuple(items.found), sample_independent=not mixes))


def _one_step(trainers: Trainers, spec: CheckSpec, folder: Path, *, parts: int, learning_rate: float) -> _Step:
    changes = {
        "per_device_train_batch_size": SAMPLES // parts,
        "gradient_accumulation_steps": parts,
        "per_device_eval_batch_size": SAMPLES,
        "learning_rate": learning_rate,
        "max_grad_norm": 0.0,
    }
    trainer = make_small(trainers, changes, steps=1, device=spec.device, folder=folder)
    for module in trainer.model.modules():
        _without_dropout(module)
    watching = _Watching(trainer)
    trainer.add_callback(watching)
    trainer.train()
    return watching.found


def _without_dropout(module: torch.nn.Module) -> None:
    """Models of transformers keep the rates of functional dropout as plain attributes: attention_dropout = 0.1."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        module.p = 0.0
    for name, value in list(vars(module).items()):
        if "dropout" in name and isinstance(value, float):
            setattr(module, name, 0.0)


class _Watching(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.found = _Step(SAMPLES)

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
        self.found.start = _trainable(model)
        self.found.learning_rates = tuple(float(group["lr"]) for group in optimizer.param_groups)
        first, second = (evaluate(self._trainer, model, SAMPLES).loss for _ in range(2))
        self.found.losses = first, second

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        assert model is not None
        named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
        self.found.gradients = {name: one.grad.float().cpu().clone() for name, one in named if one.grad is not None}
        self.found.without_gradient = tuple(name for name, one in named if one.grad is None)


def _trainable(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: one.detach().cpu().clone() for name, one in model.named_parameters() if one.requires_grad}


def _splitting(one: _Step, two: _Step, precision: str) -> Verdict:
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in one.gradients.values()))
    if norm == 0:
        return "note", SplittingFinding(found="no_gradient", samples=one.samples)
    shared = one.gradients.keys() & two.gradients.keys()
    squares = sum(float((one.gradients[name] - two.gradients[name]).square().sum()) for name in shared)
    difference = math.sqrt(squares) / norm
    equal = difference <= (5e-2 if precision == "bf16" else 1e-3)
    status = "ok" if equal else "note"
    found = "equal" if equal else "mixes"
    return status, SplittingFinding(found=found, samples=one.samples, difference=difference)  # type: ignore[return-value,arg-type]


def _seeds(one: _Step, two: _Step) -> Verdict:
    differs = next((name for name, value in one.start.items() if not torch.equal(value, two.start[name])), None)
    if differs is not None:
        return "fail", SeedFinding(found="not_seeded", parameter=differs)
    return "ok", SeedFinding(found="honoured")


def _learning_rate(one: _Step, two: _Step) -> Verdict:
    finding = partial(LearningRateFinding, own_optimizer=True, learning_rate=LEARNING_RATE)
    follows = all(
        math.isclose(twice, 2 * rate, rel_tol=1e-6)
        for rate, twice in zip(one.learning_rates, two.learning_rates, strict=True)
    )
    return ("ok", finding(found="groups_follow")) if follows else ("fail", finding(found="groups_ignore"))


def _evaluation(one: _Step) -> Verdict:
    pure = one.losses[0] == one.losses[1]
    finding = EvaluationFinding(found="pure" if pure else "random", losses=one.losses)
    return ("ok" if pure else "fail"), finding


def _gradients(one: _Step) -> Verdict:
    tensors = len(one.gradients) + len(one.without_gradient)
    count = sum(value.numel() for value in one.start.values())
    finding = partial(GradientFinding, parameter_count=count, tensors=tensors)
    broken = next((name for name, value in one.gradients.items() if not bool(value.isfinite().all())), None)
    if broken is not None:
        return "fail", finding(found="not_finite", names=(broken,), step=1)
    if not one.gradients:
        return "fail", finding(found="none", names=one.without_gradient)
    if one.without_gradient:
        return "note", finding(found="some", names=one.without_gradient)
    return "ok", finding(found="all")


def _overlap(trainer: Trainer) -> Verdict:
    train, held_out = trainer.train_dataset, trainer.eval_dataset
    searched = {content_digest(_inputs(train[index])) for index in positions(len(train), SEARCHED)}
    looked_at = positions(len(held_out), 64)
    share = sum(content_digest(_inputs(held_out[index])) in searched for index in looked_at) / len(looked_at)
    if share > LEAKED:
        return "fail", OverlapFinding(found="leaked", share=share)
    return (
        ("note", OverlapFinding(found="some", share=share)) if share else ("ok", OverlapFinding(found="none", share=0))
    )


def _inputs(sample: Any) -> Any:
    return sample.get("input_ids", sample) if isinstance(sample, Mapping) else sample


def _sizes(trainer: Trainer, largest_batch: int | None) -> Verdict:
    train, held_out = len(trainer.train_dataset), len(trainer.eval_dataset)
    finding = partial(DataSizeFinding, train_samples=train, valid_samples=held_out, largest_batch=largest_batch)
    if largest_batch is not None and train < largest_batch:
        return "note", finding(found="fewer_than_largest_batch")
    return "ok", finding(found="enough")
