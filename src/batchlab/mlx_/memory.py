"""Memory that MLX's allocator holds on its device, and a limit on it.

MLX counts the bytes of live arrays (active), their peak, and those of buffers kept for later arrays (cache). Its own
limit (`mx.set_memory_limit`) is a guideline: an allocation above it waits for running work and then goes ahead. So the
peak is compared with the limit here, after work that was evaluated. What a device truly cannot hold ends the process
instead, without an error from MLX.

Apple's processors share one memory with the system. Metal recommends a largest working set, near which a Mac begins to
swap; without a limit, 80 % of it counts as the device's memory.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import mlx.core as mx
import psutil

from batchlab.core.format import format_bytes
from batchlab.core.protocols import MemoryBound, MemoryReading, OutOfMemory

SHARE = 0.8
"""Part of Metal's recommended working set that a run may use where no limit was asked for."""


@dataclass(slots=True)
class _Baseline:
    """Bytes this process held before the measured work, and the limit above them. One per process."""

    active: int = 0
    cache: int = 0
    limit: int | None = None


_baseline = _Baseline()


def bound(limit: int | None) -> MemoryBound:
    """Take the baseline, limit memory to `limit` bytes above it (None: no limit), and reset the peak."""
    release()
    _baseline.active, _baseline.cache, _baseline.limit = mx.get_active_memory(), mx.get_cache_memory(), limit
    if limit is not None:
        mx.set_memory_limit(_baseline.active + limit)
    restart_peak()
    return MemoryBound(_baseline.active, None)


def require_within_limit() -> None:
    """Raise OutOfMemory where the peak since `restart_peak` is above the limit; of what has been evaluated so far."""
    if _baseline.limit is None:
        return
    peak = read().peak_bytes or 0
    if peak > _baseline.limit:
        raise OutOfMemory(f"MLX's arrays reached {format_bytes(peak)}; the limit is {format_bytes(_baseline.limit)}.")


def restart_peak() -> None:
    """Begin a new peak; a new run's own arrays are all that it counts."""
    mx.reset_peak_memory()


def read() -> MemoryReading:
    """Current and peak bytes of live arrays above the baseline, without the cache, which keeps what was freed."""
    active = max(0, mx.get_active_memory() - _baseline.active)
    peak = max(active, mx.get_peak_memory() - _baseline.active)
    return MemoryReading(
        in_use_bytes=active,
        reserved_bytes=None,
        peak_in_use_bytes=peak,
        peak_bytes=peak,
        measured="allocated",
    )


def device_total(device: str) -> int | None:
    """What a run may use: on Metal, `SHARE` of the recommended working set; elsewhere all memory, where it is known."""
    if device == "cpu":
        return int(psutil.virtual_memory().total)
    recommended = recommended_bytes()
    if recommended is not None:
        return int(SHARE * recommended)
    total = mx.device_info(mx.gpu).get("total_memory")
    return None if total is None else int(total)


def recommended_bytes() -> int | None:
    """Metal's recommended working set; None on other devices."""
    if not mx.is_available(mx.gpu):
        return None
    found = mx.device_info(mx.gpu).get("max_recommended_working_set_size")
    return None if found is None else int(found)


def release() -> None:
    """Give cached buffers back, so that baselines and peaks count only what is in use."""
    gc.collect()
    mx.clear_cache()
