"""Norms of micro-batch gradients, compared with the gradients themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from batchlab.core.record import NoGradientSamples
from batchlab.testing import check_measured_gradients
from batchlab.torch_ import gradient_norms

WEIGHT = 1 / 12
SIZES = (5, 4, 3)


class Tied(nn.Module):
    """Tied embedding and head with a norm layer in between, and a second head of which half is unused."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.unused = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.embedding(x)) @ self.embedding.weight.T


class Checkpointed(nn.Module):
    """The same block twice, with activations recomputed in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.head = nn.Linear(6, 1)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.head(x)


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y)


def tokens(count: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(1)
    return random.integers(0, 11, count), random.integers(0, 11, count)


def cut(batch: Sequence[np.ndarray], sizes: Sequence[int] = SIZES) -> list[tuple[np.ndarray, ...]]:
    ends = np.cumsum(sizes)
    return [tuple(array[end - size : end] for array in batch) for size, end in zip(sizes, ends, strict=True)]


def gradients_of(trainable: Any, parts: Sequence[Any], keep: Callable[[str], bool] = lambda name: True) -> list[Any]:
    """The gradient of each micro-batch, from a new model that sees only that one."""
    added = []
    for part in parts:
        trainable.init(0)
        trainable.accumulate(part, WEIGHT)
        found = trainable.gradients()
        names = sorted(name for name in trainable.parameters() if keep(name))
        shapes = trainable.parameters()
        added.append(np.concatenate([np.ravel(found.get(name, np.zeros_like(shapes[name]))) for name in names]))
    return added


def assert_norms_are_of(norms: Any, added: list[np.ndarray], share: float) -> None:
    assert [float(v) for v in norms.squared] == pytest.approx([v @ v for v in added], rel=1e-4)
    whole = sum(added[1:], start=added[0])
    assert float(norms.squared_sum) == pytest.approx(whole @ whole, rel=1e-4)
    u, v = whole - added[-1], added[-1]
    expected = [np.abs(u / (1 - share) - v / share).sum(), np.sign(u) @ v / share, np.abs(whole).sum()]
    assert [float(value) for value in norms.signs] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("chunk", [2**20, 7])
def test_norms_match_the_gradients_also_with_tied_and_unused_weights(make, monkeypatch, chunk):
    monkeypatch.setattr(gradient_norms, "CHUNK", chunk)
    trainable, parts = make(model=Tied, loss=classify), cut(tokens(12))
    added = gradients_of(trainable, parts)
    inner = gradients_of(trainable, parts, lambda name: name.startswith("norm"))
    trainable.init(0)
    norms = trainable.accumulate_measured(parts, WEIGHT, "all")
    assert_norms_are_of(norms, added, 3 / 12)
    assert [float(v) for v in norms.norm_layers[0]] == pytest.approx([v @ v for v in inner], rel=1e-4)
    assert float(norms.norm_layers[1]) == pytest.approx(sum(inner) @ sum(inner), rel=1e-4)


def test_norm_layers_alone(make, samples):
    trainable, parts = make(model=Tied, loss=classify), cut(tokens(12))
    inner = gradients_of(trainable, parts, lambda name: name.startswith("norm"))
    trainable.init(0)
    assert_norms_are_of(trainable.accumulate_measured(parts, WEIGHT, "norm_layers"), inner, 3 / 12)
    without = make()
    without.init(0)
    without_layers = without.accumulate_measured(cut(samples(12)), WEIGHT, "norm_layers")
    assert without_layers is NoGradientSamples.NO_NORM_LAYERS


def test_recomputed_activations_are_measured_or_not_measurable(make, samples):
    parts = cut(samples(12))
    right = make(model=lambda: Checkpointed(reentrant=False))
    added = gradients_of(right, parts)
    right.init(0)
    assert_norms_are_of(right.accumulate_measured(parts, WEIGHT, "all"), added, 3 / 12)
    reentrant = make(model=lambda: Checkpointed(reentrant=True))
    reentrant.init(0)
    assert reentrant.accumulate_measured(parts, WEIGHT, "all") is NoGradientSamples.PARTIAL_GRADIENTS


def test_sparse_gradients_are_not_measurable(make):
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 11, sparse=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.embedding(x)

    trainable = make(
        model=Sparse, loss=classify, optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr), grad_clip=None
    )
    trainable.init(0)
    assert trainable.accumulate_measured(cut(tokens(12)), WEIGHT, "all") is NoGradientSamples.SPARSE


def test_nonfinite_samples_give_nonfinite_norms(make, samples):
    trainable = make()
    trainable.init(0)
    x, y = samples(12)
    x[-1] = np.inf
    norms = trainable.accumulate_measured(cut((x, y)), WEIGHT, "all")
    assert np.isfinite(float(norms.squared[0]))
    assert not np.isfinite(float(norms.squared_sum))


def test_no_hook_is_left_behind(make, samples):
    trainable = make()
    trainable.init(0)
    trainable.accumulate_measured(cut(samples(12)), WEIGHT, "all")
    assert not any(parameter._backward_hooks for parameter in trainable.model.parameters())


def test_the_contract(make, samples):
    check_measured_gradients(make, samples(8))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")
def test_compiled_models_are_measured_without_recompiling(make, samples):
    torch._dynamo.reset()  # independent of what other tests compiled
    parts = cut(samples(12), (4, 4, 4))
    added = gradients_of(make(), parts)
    trainable = make(device={"compile": "default"})
    trainable.init(0)
    trainable.accumulate(parts[0], WEIGHT)
    trainable.apply(0.0)
    trainable.model.load_state_dict(fresh(make).model.state_dict())
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_norms_are_of(trainable.accumulate_measured(parts, WEIGHT, "all"), added, 4 / 12)
    torch._dynamo.reset()


def fresh(make: Any) -> Any:
    trainable = make()
    trainable.init(0)
    return trainable
