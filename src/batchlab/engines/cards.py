"""The GPUs that workers can be spread over, found without starting CUDA in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from batchlab.core.nvml import card_count

_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
"""One folder per processor and GPU that ROCm's driver knows."""


def visible_cards(environment: Mapping[str, str] = os.environ, kfd: Path = _KFD) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES lists (on ROCm, HIP_VISIBLE_DEVICES too), or one number per card of this machine."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES", environment.get("HIP_VISIBLE_DEVICES"))
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip())
    return tuple(map(str, range(card_count() or _rocm_cards(kfd))))


def _rocm_cards(nodes: Path) -> int:
    """Nodes with a GPU; that of a processor has the number 0."""
    numbers = [file.read_text().strip() for file in nodes.glob("*/gpu_id")]
    return sum(number not in ("", "0") for number in numbers)
