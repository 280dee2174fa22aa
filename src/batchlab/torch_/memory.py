"""Memory use of this process on its device, and an enforced limit.

On CUDA the caching allocator counts and limits. What a warmed-up process holds (a workspace of cuBLAS takes 32 MiB on
Hopper) counts neither against the limit nor in a peak. A CPU has neither counter nor limit, so the process is measured
instead, above a baseline taken after a warm-up step: resident memory (VmRSS, with its peak VmHWM) and private writable
memory, touched or not (VmData). A soft RLIMIT_DATA makes allocations fail that would raise VmData above the limit.
VmData has no peak counter. The peak of all mapped memory (VmPeak) rises with it but cannot be reset, so it is used only
if the process never held more memory before.
"""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from batchlab.core.protocols import MemoryBound, MemoryReading

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(slots=True)
class _Baseline:
    """Bytes this process held before the measured work. One per process, hence the module-level instance.

    `allocated` and `reserved` are the allocator's, on CUDA; the others are the process's, on a CPU.
    """

    allocated: int = 0
    reserved: int = 0
    resident: int | None = None
    data: int = 0
    mapped: int = 0
    mapped_peak: int = 0


_baseline = _Baseline()


def bound(device: torch.device, limit: int | None) -> MemoryBound:
    """Take the baseline, limit memory to `limit` bytes above it (None: no limit), and reset the peaks.

    The baseline is VmData on a CPU and the allocator's reserved bytes on other devices. Call once per process.
    """
    release(device)
    if device.type == "cuda":
        return _bound_cuda(device, limit)
    if device.type == "mps":
        held = torch.mps.driver_allocated_memory()
        if limit is not None:
            torch.mps.set_per_process_memory_fraction(mps_fraction(held + limit, torch.mps.recommended_max_memory()))
        return MemoryBound(held, None)
    restart_peak(device)
    _take_baseline()
    if limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        soft = _baseline.data + limit
        resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
    return MemoryBound(_baseline.data or _baseline.resident, None)


def _take_baseline() -> None:
    _baseline.resident, _baseline.data, _baseline.mapped = _resident(), _data(), _mapped()


def _bound_cuda(device: torch.device, limit: int | None) -> MemoryBound:
    """Limit the process to the free memory even if `limit` is None.

    Some drivers fall back to host memory otherwise, which does not fail but is many times slower.
    """
    free, total = torch.cuda.mem_get_info(device)
    _baseline.allocated, _baseline.reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    above = free if limit is None else min(limit, free)
    torch.cuda.set_per_process_memory_fraction(cuda_fraction(_baseline.reserved + above, total), device)
    restart_peak(device)
    return MemoryBound(_baseline.reserved, free)


def cuda_fraction(limit: int, total: int) -> float:
    """The fraction that allows `limit` bytes: torch truncates its product with `total`, and one byte less than a whole
    number of segments makes the last one unusable."""
    return min(1.0, math.nextafter(limit / total, math.inf))


def mps_fraction(limit: int, recommended: int) -> float:
    """The fraction of Metal's recommended maximum that allows `limit` bytes; torch accepts at most 2."""
    return min(2.0, limit / recommended)


def restart_peak(device: torch.device) -> None:
    """Reset the peak counters. MPS has none, and the process peak on macOS cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "cpu":
        if _CLEAR_REFS.exists():
            _CLEAR_REFS.write_text("5")  # 5: reset the peak of resident memory; see man proc(5)
        if _baseline.resident is None:
            _take_baseline()
        _baseline.mapped_peak = _mapped_peak()


def read(device: torch.device) -> MemoryReading:
    """Current and peak bytes above the baseline: of the allocator on CUDA, of the process on a CPU; of the allocator
    on MPS, all of them.

    On a CPU the peak is that of VmData, which the limit bounds, or that of resident memory if an earlier peak of the
    process hides it.
    """
    if device.type == "cuda":
        return MemoryReading(
            in_use_bytes=max(0, torch.cuda.memory_allocated(device) - _baseline.allocated),
            reserved_bytes=max(0, torch.cuda.memory_reserved(device) - _baseline.reserved),
            peak_in_use_bytes=max(0, torch.cuda.max_memory_allocated(device) - _baseline.allocated),
            peak_bytes=max(0, torch.cuda.max_memory_reserved(device) - _baseline.reserved),
            measured="reserved",
        )
    if device.type == "mps":
        held, reserved = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
        return MemoryReading(held, reserved, None, None, "reserved")
    base = _baseline.resident or 0
    resident = max(0, _resident() - base)
    peak_resident = max(resident, _peak_resident() - base)
    return MemoryReading(
        in_use_bytes=resident,
        reserved_bytes=None,
        peak_in_use_bytes=peak_resident,
        peak_bytes=_peak_data() or peak_resident,
        measured="process",
    )


def device_total(device: torch.device) -> int:
    """Total memory of the GPU, Metal's recommended maximum, or the memory of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return int(psutil.virtual_memory().total)


def _status(field: str) -> int:
    """Value of a `VmXxx:  123 kB` line of /proc/self/status, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _resident() -> int:
    return _status("VmRSS") if _STATUS.exists() else int(psutil.Process().memory_info().rss)


def _peak_resident() -> int:
    if _STATUS.exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _data() -> int:
    return _status("VmData") if _STATUS.exists() else 0


def _mapped() -> int:
    return _status("VmSize") if _STATUS.exists() else 0


def _mapped_peak() -> int:
    return _status("VmPeak") if _STATUS.exists() else 0


def _peak_data() -> int | None:
    """Peak of VmData above the baseline; None if an earlier peak of this process hides it."""
    peak = _mapped_peak()
    return max(_data() - _baseline.data, peak - _baseline.mapped) if peak > _baseline.mapped_peak else None


def release(device: torch.device) -> None:
    """Return unused memory to the system, including free heap pages on Linux.

    Baselines and peaks then count only memory that is in use.
    """
    gc.collect()
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def release_all() -> None:
    """`release` for the accelerator of this process, or for the CPU if there is none."""
    release(torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu"))
