"""The Framework implementation for torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from batchlab.core.protocols import Batch, Framework, MemoryBound
from batchlab.core.record import Environment, TraceResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.task import Task
from batchlab.torch_ import device as devices
from batchlab.torch_ import memory
from batchlab.torch_.inspection import InspectableTorchTrainable
from batchlab.torch_.observed import ObservedModel


class TorchFramework(Framework):
    """Creates TorchTrainables. Stateless: what it changes (threads, flags, limits, seeds) belongs to the process."""

    def resolve_device(self, name: str) -> str:
        """Resolve 'auto' to the best device. Raises InputError that lists the devices if `name` does not exist."""
        return devices.resolve(name)

    def start(self, device: DeviceSettings, seed: int) -> None:
        """Call before each run: sets threads, precision and random state, and frees memory of earlier runs."""
        devices.prepare(device, seed)

    @contextmanager
    def watch_training(self, begun: Callable[[], None]) -> Iterator[None]:
        """Call `begun` before every step of every torch optimizer of this process."""
        handle = register_optimizer_step_pre_hook(lambda *_: begun())
        try:
            yield
        finally:
            handle.remove()

    def import_all(self) -> None:
        """torch imports its compiler with the first optimizer, 800 modules in 1.4 s of a processor."""
        importlib.import_module("torch._dynamo")
        importlib.import_module("batchlab.torch_.trace")

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Inside the context, torch computes in the calling thread alone."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def holds_device(self) -> bool:
        """Whether torch has initialised CUDA here, or counted its devices through the driver."""
        return devices.in_use()

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> InspectableTorchTrainable:
        """A Trainable for this task; nothing is allocated before its `init`."""
        return InspectableTorchTrainable(task, device, optimizer)

    def trace(self, task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
        """Peak memory of optimizer steps on fake tensors.

        Fake tensors are imported only here, which takes one to two seconds.
        """
        from batchlab.torch_.trace import trace

        return trace(task, spec, sample, held_out)

    def trace_values(self, task: Task, spec: TraceSpec, batches: Iterable[Batch], held_out: Batch) -> TraceResult:
        """Peak memory of optimizer steps that run on the CPU, over these batches."""
        from batchlab.torch_.trace import trace_values

        return trace_values(task, spec, batches, held_out)

    def memory_bytes(self, task: Task, device: DeviceSettings) -> int | None:
        """Total memory of the GPU, Metal's recommended maximum, or the memory of the machine."""
        return memory.device_total(devices.torch_device(device.name))

    def unified_memory(self, device: DeviceSettings) -> bool:
        """On Metal, yes."""
        return device.name == "mps"

    def bound_memory(self, device: DeviceSettings) -> MemoryBound:
        """Apply `device.memory_limit` above the memory in use now. Call once per process."""
        return memory.bound(devices.torch_device(device.name), device.memory_limit)

    def release_memory(self) -> None:
        """Empty the cache of the accelerator, or return free heap pages."""
        memory.release_all()

    def watched(self, model: Any, parameters: Literal["all", "norm_layers"], scaler: Any) -> ObservedModel:
        """The measuring part of `batchlab.observe`; `scaler` is the torch.amp.GradScaler in use."""
        return ObservedModel(model, parameters, scaler)

    def environment(self, device: DeviceSettings) -> Environment:
        """Versions, device and threads for the record."""
        return devices.describe(device)
