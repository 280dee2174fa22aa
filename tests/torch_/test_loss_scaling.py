"""fp16: the loss is scaled, overflows change nothing but the scale, and a resumed run goes on with the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from batchlab.core.protocols import AddedNorms, Batch
from batchlab.torch_.inspection import InspectableTorchTrainable

Make = Callable[..., InspectableTorchTrainable]
FP16: dict[str, Any] = {"precision": "fp16"}


def batch(size: int = 8, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    x = random.standard_normal((size, 6)).astype(np.float32)
    return x, x[:, :1]


def steps(trainable: InspectableTorchTrainable, count: int) -> list[float]:
    losses = []
    for number in range(count):
        drawn = batch(seed=number)
        trainable.accumulate(drawn, 1.0 / trainable.count(drawn))
        losses.append(float(trainable.apply(1e-2).loss))
    return losses


class Steep(nn.Module):
    """Its gradient is `slope` for every weight."""

    slope = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (torch.ones_like(x) @ self.weight) * self.slope


def mean(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return model(x).float().mean()


def test_it_trains_about_as_in_fp32(make: Make) -> None:
    trainables = [make(device=device) for device in (FP16, {})]
    for trainable in trainables:
        trainable.init(0)
    narrow, wide = (steps(trainable, 20) for trainable in trainables)
    assert narrow[-1] == pytest.approx(wide[-1], rel=0.3)  # its first steps may be left out
    assert narrow[-1] < 0.7 * narrow[0]


def test_gradients_that_a_scale_would_overflow_leave_the_step_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steep, "slope", 8.0)  # 8 · 65,536 is more than fp16 holds
    trainable = make(model=Steep, loss=mean, device=FP16, name="sgd", weight_decay=0.0, grad_clip=None)
    trainable.init(0)
    skipped = []
    for _ in range(8):
        trainable.accumulate(batch(), 1 / 8)
        before = trainable.parameters()["weight"].copy()
        stats = trainable.apply(0.1)
        skipped.append(bool(stats.skipped))
        assert skipped[-1] == np.array_equal(before, trainable.parameters()["weight"])
        assert math.isfinite(float(stats.loss))  # also of SGD's momentum
    assert skipped[0]
    assert not skipped[-1]
    assert skipped == sorted(skipped, reverse=True)  # once the scale is small enough it stays so
    assert float(stats.grad_norm) == pytest.approx(8.0 * math.sqrt(6), rel=1e-3)  # of the gradient, not the scaled one


def test_a_resumed_run_has_the_scale_of_the_one_it_continues(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steep, "slope", 8.0)
    first, second = (make(model=Steep, loss=mean, device=FP16) for _ in range(2))
    first.init(0)
    steps(first, 6)
    state = first.state()
    second.init(1)
    second.load(state)
    assert steps(second, 4) == steps(first, 4)
    assert np.array_equal(first.parameters()["weight"], second.parameters()["weight"])


def test_norms_of_micro_batches_are_those_of_unscaled_gradients(make: Make) -> None:
    found = []
    for device in (FP16, {}):
        trainable = make(device=device)
        trainable.init(0)
        added = trainable.accumulate_measured([batch(4, 1), batch(4, 2)], 1 / 8, "all")
        assert isinstance(added, AddedNorms)
        assert added.signs is not None
        found.append([float(value) for value in (*added.squared, added.squared_sum, *added.signs)])
    assert found[0] == pytest.approx(found[1], rel=2e-2)


def test_nothing_changes_in_the_other_precisions(make: Make) -> None:
    trainable = make()
    trainable.init(0)
    trainable.accumulate(batch(), 1 / 8)
    assert trainable.apply(1e-2).skipped == 0.0
