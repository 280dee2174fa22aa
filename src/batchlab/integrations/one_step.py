"""What one training step of a person's trainer shows about it, and what follows for `batchlab check`.

Two steps are compared: of one micro-batch, and of two halves of it, with the same seed and twice the learning rate.
Dropout is off in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

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
from batchlab.integrations.data_digest import content_digest, positions
from batchlab.runs.bench import Verdict
from batchlab.runs.check import LEAKED, SAMPLES, Items
from batchlab.runs.throughput import LEARNING_RATE

SEARCHED = 20_000
"""Training samples among which held-out ones are searched."""


@dataclass(slots=True)
class OneStep:
    """What one training step showed. Tensors are copies on the host."""

    losses: tuple[float, float] = (math.nan, math.nan)  # of held-out samples before training, evaluated twice
    start: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    without_gradient: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = ()

    def read_start(self, model: nn.Module) -> None:
        """Copy the parameters that are trained."""
        named = model.named_parameters()
        self.start = {name: one.detach().cpu().clone() for name, one in named if one.requires_grad}

    def read_gradients(self, model: nn.Module) -> None:
        """Copy their gradients."""
        named = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
        self.gradients = {name: one.grad.float().cpu().clone() for name, one in named if one.grad is not None}
        self.without_gradient = tuple(name for name, one in named if one.grad is None)


MakeStep = Callable[[int, float], OneStep]
"""(micro-batches that SAMPLES are split into, learning rate) → the step of a fresh trainer."""


def check_steps(
    make_step: MakeStep,
    precision: str,
    train: Callable[[], Any],
    held_out: Callable[[], Any],
    largest: int | None,
    judged: str = "loss",
) -> CheckResult:
    """Every item. `train` and `held_out` give the data sets; `judged` names what the losses of a step are."""
    items, found = Items(), list[OneStep]()

    def first() -> Verdict:
        found.extend((make_step(1, LEARNING_RATE), make_step(2, 2 * LEARNING_RATE)))
        loss = found[0].losses[0]
        finite = math.isfinite(loss)
        return ("ok" if finite else "fail"), StartLoss(found="finite" if finite else "not_finite", loss=loss)

    if items.add(judged, first) != "ok":
        return CheckResult(items=tuple(items.found))
    one, two = found
    items.add("splitting", lambda: _splitting(one, two, precision))
    mixes = getattr(items.found[-1].finding, "found", "") == "mixes"
    items.add("seeds", lambda: _seeds(one, two))
    items.add("learning rate", lambda: _learning_rate(one, two))
    items.add("evaluation", lambda: _evaluation(one))
    items.add("gradients", lambda: _gradients(one))
    items.add("held-out data", lambda: _overlap(train(), held_out()))
    items.add("data size", lambda: _sizes(len(train()), len(held_out()), largest))
    return CheckResult(items=tuple(items.found), sample_independent=not mixes)


def without_dropout(model: nn.Module) -> None:
    """Switch it off. Models of transformers keep rates of functional dropout in attributes: attention_dropout = 0.1."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def _splitting(one: OneStep, two: OneStep, precision: str) -> Verdict:
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in one.gradients.values()))
    if norm == 0:
        return "note", SplittingFinding(found="no_gradient", samples=SAMPLES)
    shared = one.gradients.keys() & two.gradients.keys()
    squares = sum(float((one.gradients[name] - two.gradients[name]).square().sum()) for name in shared)
    finding = partial(SplittingFinding, samples=SAMPLES, difference=math.sqrt(squares) / norm)
    equal = math.sqrt(squares) <= (5e-2 if precision == "bf16" else 1e-3) * norm
    return ("ok", finding(found="equal")) if equal else ("note", finding(found="mixes"))


def _seeds(one: OneStep, two: OneStep) -> Verdict:
    differs = next((name for name, value in one.start.items() if not torch.equal(value, two.start[name])), None)
    if differs is not None:
        return "fail", SeedFinding(found="not_seeded", parameter=differs)
    return "ok", SeedFinding(found="starts_equal")


def _learning_rate(one: OneStep, two: OneStep) -> Verdict:
    finding = partial(LearningRateFinding, own_optimizer=True, learning_rate=LEARNING_RATE)
    follows = all(
        math.isclose(twice, 2 * rate, rel_tol=1e-6)
        for rate, twice in zip(one.learning_rates, two.learning_rates, strict=True)
    )
    return ("ok", finding(found="groups_follow")) if follows else ("fail", finding(found="groups_ignore"))


def _evaluation(one: OneStep) -> Verdict:
    pure = one.losses[0] == one.losses[1]
    return ("ok" if pure else "fail"), EvaluationFinding(found="pure" if pure else "random", losses=one.losses)


def _gradients(one: OneStep) -> Verdict:
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


def _overlap(train: Any, held_out: Any) -> Verdict:
    searched = {content_digest(_inputs(train[index])) for index in positions(len(train), SEARCHED)}
    looked_at = positions(len(held_out), 64)
    share = sum(content_digest(_inputs(held_out[index])) in searched for index in looked_at) / len(looked_at)
    if share > LEAKED:
        return "fail", OverlapFinding(found="leaked", share=share)
    if share > 0:
        return "note", OverlapFinding(found="some", share=share)
    return "ok", OverlapFinding(found="none", share=share)


def _inputs(sample: Any) -> Any:
    return sample.get("input_ids", sample) if isinstance(sample, Mapping) else sample


def _sizes(train: int, held_out: int, largest_batch: int | None) -> Verdict:
    finding = partial(DataSizeFinding, train_samples=train, valid_samples=held_out, largest_batch=largest_batch)
    if largest_batch is not None and train < largest_batch:
        return "note", finding(found="fewer_than_largest_batch")
    return "ok", finding(found="enough")
