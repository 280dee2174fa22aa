"""A small torch task without a fault, in which the tests of the check plant one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import batchlab
from batchlab.core.check import CheckItem, CheckResult
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task
from batchlab.data.source import open_dataset
from batchlab.data.stream import SampleStream
from batchlab.runs.check import check
from batchlab.torch_.framework import TorchFramework


class Sound:
    """Parts of the task, the check of one, and what it found."""

    @staticmethod
    def vectors(seed: int, samples: int = 64) -> tuple[np.ndarray, np.ndarray]:
        x = np.random.default_rng(seed).normal(size=(samples, 6)).astype(np.float32)
        return x, (np.abs(x.sum(axis=1)) * 2).astype(np.int64) % 3

    @staticmethod
    def network(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), *layers, nn.Tanh(), nn.Linear(16, 3))

    @staticmethod
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y)

    def task(self, **changes: Any) -> Task:
        sound: dict[str, Any] = {
            "model": self.network,
            "loss": self.loss,
            "train": self.vectors(0),
            "valid": self.vectors(1),
        }
        return batchlab.task(**{**sound, **changes})

    @staticmethod
    def check(task: Task, device: DeviceSettings | None = None, **options: Any) -> CheckResult:
        torch.manual_seed(7)
        train, valid = (
            open_dataset(data, unit=task.unit, sequence_length=task.sequence_length, what="data")
            for data in (task.train, task.valid)
        )
        config = OptimizerConfig(name="task" if task.optimizer else "adamw")
        return check(
            lambda: TorchFramework().trainable(task, device or DeviceSettings(), OptimizerSettings(config=config)),
            train=SampleStream(train, seed=0),
            valid=valid,
            train_dataset=train,
            unit=task.unit,
            own_optimizer=task.optimizer is not None,
            **options,
        )

    @staticmethod
    def item(result: CheckResult, name: str) -> CheckItem:
        return next(item for item in result.items if item.name == name)

    def finding(self, result: CheckResult, name: str) -> Any:
        return self.item(result, name).finding

    @staticmethod
    def not_ok(result: CheckResult) -> dict[str, str]:
        return {item.name: item.status for item in result.items if item.status != "ok"}


@pytest.fixture
def sound() -> Sound:
    return Sound()
