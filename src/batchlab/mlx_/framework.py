"""The Framework implementation for MLX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import mlx.optimizers as optim

from batchlab.core.protocols import Framework, MemoryBound
from batchlab.core.record import Environment
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task
from batchlab.mlx_ import device as devices
from batchlab.mlx_ import memory
from batchlab.mlx_.inspection import InspectableMlxTrainable
from batchlab.mlx_.observed import ObservedModel


class MlxFramework(Framework):
    """Creates MlxTrainables. Stateless: what it changes (device, limit, seeds) belongs to the process.

    No worker is forked, because MLX computes in threads, which a fork does not have. Memory is found by running steps:
    a graph that is not evaluated has shapes, but not the buffers that MLX's scheduler reuses.
    """

    def resolve_device(self, name: str) -> str:
        """Resolve 'auto' to the GPU, else the CPU. Raises InputError that lists the devices if `name` does not
        exist."""
        return devices.resolve(name)

    def start(self, device: DeviceSettings, seed: int) -> None:
        """Call before each run: sets the default device and random state, and frees memory of earlier runs."""
        devices.prepare(device, seed)

    @contextmanager
    def watch_training(self, begun: Callable[[], None]) -> Iterator[None]:
        """Call `begun` before every step of every MLX optimizer of this process."""
        step = optim.Optimizer.apply_gradients

        def watched(optimizer: Any, gradients: Any, parameters: Any) -> Any:
            begun()
            return step(optimizer, gradients, parameters)

        optim.Optimizer.apply_gradients = watched
        try:
            yield
        finally:
            optim.Optimizer.apply_gradients = step

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> InspectableMlxTrainable:
        """A Trainable for this task; nothing is allocated before its `init`."""
        return InspectableMlxTrainable(task, device, optimizer)

    def memory_bytes(self, task: Task, device: DeviceSettings) -> int | None:
        """On Metal, 80 % of the recommended working set; on a CPU the memory of the machine."""
        return memory.device_total(device.name)

    def unified_memory(self, device: DeviceSettings) -> bool:
        """On Metal, yes."""
        return device.name == "gpu" and memory.recommended_bytes() is not None

    def bound_memory(self, device: DeviceSettings) -> MemoryBound:
        """Apply `device.memory_limit` above the memory in use now. Call once per process."""
        return memory.bound(device.memory_limit)

    def release_memory(self) -> None:
        """Give MLX's cached buffers back."""
        memory.release()

    def watched(self, model: Any, parameters: Literal["all", "norm_layers"], scaler: Any) -> ObservedModel:
        """The measuring part of `batchlab.observe`; MLX scales no losses, so there is no `scaler`."""
        return ObservedModel(model, parameters)

    def environment(self, device: DeviceSettings) -> Environment:
        """Versions, device and threads for the record."""
        return devices.describe(device)
