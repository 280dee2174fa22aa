"""Compiled runs train like uncompiled ones, and never fall back in silence."""

from __future__ import annotations

import shutil

import pytest
import torch._dynamo
from torch import nn

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")


def step(trainable, batch):
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    return float(trainable.apply(1e-2).loss)


@pytest.mark.slow
@needs_compiler
def test_compiled_equals_uncompiled(make, samples):
    losses, evaluated = [], []
    for compile_it in (False, True):
        trainable = make(device={"compile": compile_it})
        trainable.init(0)
        losses.append([step(trainable, samples(8, seed=index)) for index in range(4)])
        evaluated.append(float(trainable.evaluate(samples(5))[0]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert evaluated[1] == pytest.approx(evaluated[0], rel=1e-4)


class NewEveryTime(nn.Module):
    """Depends on a Python number, which is compiled in: every other number compiles anew."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.calls = 0

    def forward(self, x):
        return self.linear(x) - self.calls


@pytest.mark.slow
@needs_compiler
def test_reaching_the_recompile_limit_is_an_error(make, samples):
    trainable = make(model=NewEveryTime, device={"compile": True})
    trainable.init(0)
    with torch._dynamo.config.patch(recompile_limit=2):
        for calls in range(2):
            trainable.model.calls = calls
            step(trainable, samples(8))
        trainable.model.calls = 2
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            step(trainable, samples(8))
    trainable.evaluate(samples(8))


@pytest.mark.slow
@needs_compiler
def test_a_look_at_a_compiled_model_neither_compiles_again_nor_changes_it(make, samples):
    """The watched step runs compiled as always; activations come from an uncompiled evaluation pass."""
    losses = []
    for looking in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        trainable = make(device={"compile": True})
        trainable.init(0)
        run = []
        for index in range(4):
            if looking:
                trainable.watch("full")
            run.append(step(trainable, samples(8, seed=index)))
            if looking:
                readings = trainable.readings(samples(4))
        losses.append((run, torch._dynamo.utils.counters["stats"]["unique_graphs"]))
    assert losses[0] == losses[1]
    assert readings["activation_rms/inner"] > 0
