"""What the memory probes of several trainers share: the longest sample, and the baseline of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from batchlab.core.protocols import MemoryBound
from batchlab.core.spec import CapacitySpec, DeviceSettings, ThroughputSpec
from batchlab.integrations.data_digest import positions
from batchlab.torch_ import memory

LENGTHS_LOOKED_AT = 2000
"""Samples among which the longest is searched."""

_bound: list[MemoryBound] = []
"""The bound of this process, which is set once, after a warm-up step."""


def sample_size(sample: Any) -> int:
    """Numbers in a sample: of all its arrays and lists together."""
    if isinstance(sample, Mapping):
        return sum(sample_size(value) for value in sample.values())
    if hasattr(sample, "numel"):
        return int(sample.numel())
    if isinstance(sample, list | tuple):
        return sum(sample_size(value) for value in sample)
    return 1


def longest(data: Any) -> int:
    """Index of the largest sample among those looked at."""
    looked_at = positions(len(data), LENGTHS_LOOKED_AT)
    return max(looked_at, key=lambda index: (sample_size(data[index]), -index))


def bound_memory(spec: CapacitySpec | ThroughputSpec, warm_up: Callable[[DeviceSettings], None]) -> MemoryBound:
    """Warm up with a model that is gone afterwards, then take the baseline: what a process loads lazily belongs to no
    batch size. The limit holds from then on."""
    if not _bound:
        warm_up(spec.device.model_copy(update={"memory_limit": None}))
        _bound.append(memory.bound(torch.device(spec.device.name), spec.device.memory_limit))
    return _bound[0]


def waiting_for(device: str) -> Callable[[], None]:
    """Waits until a device is idle."""
    if device.startswith("cuda"):
        return lambda: torch.cuda.synchronize(device)
    return lambda: None
