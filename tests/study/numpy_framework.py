"""A framework of one's own, in numpy, and a task in it: what docs/frameworks.md explains.

A model is a dict of arrays, and a loss returns its mean and the gradient of the mean by name. The optimizer is SGD.
"""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.core.host import host_environment
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.protocols import Batch, Framework, MemoryReading, StepStats
from batchlab.core.record import Environment
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task

Arrays = dict[str, npt.NDArray[np.float64]]


class NumpyTrainable:
    sample_independent = True

    def __init__(self, task: Task, optimizer: OptimizerSettings) -> None:
        self._task, self._clip = task, optimizer.config.grad_clip

    def init(self, seed: int) -> None:
        np.random.seed(seed)
        self._model: Arrays = self._task.model()
        self._clear()

    def _clear(self) -> None:
        self._loss, self._gradient = 0.0, {name: np.zeros_like(value) for name, value in self._model.items()}

    def count(self, batch: Batch) -> float:
        return float(len(batch[-1]))

    def accumulate(self, batch: Batch, weight: float) -> None:
        mean, gradient = self._task.loss(self._model, *batch)
        self._loss += weight * self.count(batch) * mean
        for name, value in gradient.items():
            self._gradient[name] += weight * self.count(batch) * value

    def apply(self, learning_rate: float) -> StepStats:
        norm = float(np.sqrt(sum(np.square(value).sum() for value in self._gradient.values())))
        clipped = self._clip is not None and norm > self._clip
        factor = self._clip / norm if self._clip is not None and clipped else 1.0
        for name, value in self._gradient.items():
            self._model[name] = self._model[name] - learning_rate * factor * value
        stats = StepStats(self._loss, norm, float(clipped))
        self._clear()
        return stats

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        return self.raw_loss(batch) * self.count(batch), self.count(batch)

    def state(self) -> bytes:
        file = io.BytesIO()
        np.savez(file, **self._model)  # type: ignore[arg-type]
        return file.getvalue()

    def load(self, state: bytes) -> None:
        with np.load(io.BytesIO(state), allow_pickle=False) as stored:
            self._model = dict(stored)
        self._clear()

    def memory(self) -> MemoryReading:
        return MemoryReading(None, None, None, None, "process")

    def synchronize(self) -> float:
        return time.perf_counter()

    def parameter_count(self) -> int:
        return sum(value.size for value in self._model.values())

    def optimizer_family(self) -> Literal["adam", "sgd", "other"]:
        return "sgd"

    def optimizer_groups(self) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        group = OptimizerGroup(optimizer="SGD", learning_rate_ratio=1.0, parameter_count=self.parameter_count())
        return [(group, tuple(self._model))]

    def parameters(self) -> Mapping[str, npt.NDArray[Any]]:
        return {name: value.copy() for name, value in self._model.items()}

    def gradients(self) -> Mapping[str, npt.NDArray[Any]]:
        return {name: value.copy() for name, value in self._gradient.items()}

    def raw_loss(self, batch: Batch) -> float:
        return float(self._task.loss(self._model, *batch)[0])

    def loss_count(self, batch: Batch) -> float | None:
        return None

    def without_randomness(self) -> None: ...

    def mixing_layer(self, batch: Batch, half: int) -> str | None:
        return None


class NumpyFramework(Framework):
    def resolve_device(self, name: str) -> str:
        if name not in ("auto", "cpu"):
            raise InputError(f"numpy computes on the CPU, not on {name!r}.")
        return "cpu"

    def start(self, device: DeviceSettings, seed: int) -> None:
        np.random.seed(seed)

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> NumpyTrainable:
        return NumpyTrainable(task, optimizer)

    def environment(self, device: DeviceSettings) -> Environment:
        return host_environment(f"numpy {np.__version__}", threads=device.threads)
