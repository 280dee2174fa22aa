"""The machine and the Python that a run is executed with, whatever computes on it."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import numpy as np

import batchlab
from batchlab.core.record import Environment


def host_environment(
    framework: str,
    *,
    threads: int,
    device: str = "",
    instruction_set: str = "",
    device_memory_bytes: int | None = None,
) -> Environment:
    """An Environment of this process. framework: name and version. device: as its driver calls it; default: the
    processor."""
    name = processor()
    return Environment(
        batchlab=batchlab.__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        framework=framework,
        platform=platform.platform(),
        processor=name,
        instruction_set=instruction_set,
        device=device or name,
        device_memory_bytes=device_memory_bytes,
        cores=cores(),
        threads=threads,
    )


def processor() -> str:
    """The processor's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Number of cores this process may use, which in a container can be less than that of the machine."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
