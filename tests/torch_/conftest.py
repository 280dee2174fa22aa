"""A small task and a factory of Trainables for the tests of batchlab.torch_."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import batchlab
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Batch
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.inspection import InspectableTorchTrainable

FEATURES = 6


class Net(nn.Module):
    """Two layers with dropout in between; a tanh keeps gradients smooth."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(FEATURES, 16)
        self.dropout = nn.Dropout(dropout)
        self.outer = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(torch.tanh(self.inner(x))))


def squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(x), y)


@pytest.fixture
def make() -> Iterator[Callable[..., InspectableTorchTrainable]]:
    """`make(model=…, loss=…, optimizer=…, batch_ratio=…, device={…}, **optimizer settings)`, not yet initialised."""
    TorchFramework().start(DeviceSettings(), 0)

    def build(
        *,
        model: Callable[[], Any] = Net,
        loss: Callable[..., Any] = squared_error,
        optimizer: Callable[..., Any] | None = None,
        batch_ratio: float = 1.0,
        rate_ratio: float = 1.0,
        device: dict[str, Any] | None = None,
        task: dict[str, Any] | None = None,
        **settings: Any,
    ) -> InspectableTorchTrainable:
        what = batchlab.task(
            model=model, loss=loss, train=np.zeros(9), valid=np.zeros(9), optimizer=optimizer, **(task or {})
        )
        config = OptimizerConfig(**{"name": "task" if optimizer else "adamw", **settings})
        ratios = OptimizerSettings(config=config, batch_ratio=batch_ratio, rate_ratio=rate_ratio)
        return TorchFramework().trainable(what, DeviceSettings(**(device or {})), ratios)

    yield build
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def samples() -> Callable[..., Batch]:
    """`samples(n)`: n points of a fixed noisy function."""

    def draw(count: int, dtype: Any = np.float32, seed: int = 0) -> Batch:
        random = np.random.default_rng(seed)
        x = random.standard_normal((count, FEATURES))
        y = np.sin(x).sum(axis=1, keepdims=True) + 0.1 * random.standard_normal((count, 1))
        return x.astype(dtype), y.astype(dtype)

    return draw
