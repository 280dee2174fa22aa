"""torch as batchlab sees it: the object behind `protocols.Framework`."""

from __future__ import annotations

import torch

from batchlab.core.protocols import Batch, MemoryBound
from batchlab.core.record import Environment, TraceResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.task import Task
from batchlab.torch_ import device as devices
from batchlab.torch_ import memory
from batchlab.torch_.inspection import InspectableTorchTrainable


class TorchFramework:
    """Stateless: everything it changes (threads, flags, limits, seeds) belongs to the process."""

    def resolve_device(self, name: str) -> str:
        """'auto' → the best device here; InputError naming what exists when `name` does not."""
        return devices.resolve(name)

    def start(self, device: DeviceSettings, seed: int) -> None:
        """Before each run: threads, precision, random state, and nothing left over from the run before."""
        devices.prepare(device, seed)

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> InspectableTorchTrainable:
        """A Trainable for this task; nothing is allocated before its `init`."""
        return InspectableTorchTrainable(task, device, optimizer)

    def trace(self, task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
        """Peaks of whole steps over tensors without values; fake tensors are imported only here (a second or two)."""
        from batchlab.torch_.trace import trace

        return trace(task, spec, sample, held_out)

    def memory_bytes(self, task: Task, device: DeviceSettings) -> int | None:
        """The card's, what Metal recommends as a maximum, or the machine's."""
        return memory.device_total(torch.device(device.name))

    def bound_memory(self, device: DeviceSettings) -> MemoryBound:
        """Apply `device.memory_limit` above what the process holds now. Once per process."""
        return memory.bound(torch.device(device.name), device.memory_limit)

    def environment(self, device: DeviceSettings) -> Environment:
        """Versions, device and threads, for the record."""
        return devices.describe(device)
