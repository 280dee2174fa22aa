"""What bounds memory, why a size did not fit, and what longer runs of a layout showed."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import MemoryPoint
from batchlab.analysis.capacity.host_memory_fallback import PeakAboveDevice, SlowerThanSmaller
from batchlab.analysis.capacity.proof import Proof
from batchlab.core.format import format_bytes, format_plural
from batchlab.storage.decisions import LimitKind

_LIMIT = {
    LimitKind.WORKER_DATA: "VmData of a worker above its baseline",
    LimitKind.ALLOCATOR: "of the device's allocator, as asked with --memory-limit",
    LimitKind.FREE_HOST_MEMORY: "the memory of this machine that was free; no limit was asked for",
    LimitKind.DEVICE_MEMORY: "the device's own memory",
    LimitKind.UNIFIED_MEMORY: "of the memory shared with the system, what the device recommends to use",
    LimitKind.OTHER_DEVICE: "of a CUDA device that is not here, by the rules of its caching allocator",
}


def describe_limit(kind: LimitKind | None) -> str:
    """What a limit bounds, as it stands behind its bytes: ` (the device's own memory)`; empty where it is unknown."""
    return "" if kind is None else f" ({_LIMIT[kind]})"


def probe_reason(point: MemoryPoint) -> str:
    """Why a size did not fit: the recorded reason, or the sign that it ran in the host's memory."""
    match point.host_memory:
        case None:
            return point.reason
        case PeakAboveDevice(peak, device):
            return (
                f"It ran with a peak of {format_bytes(peak)} on a device with {format_bytes(device)}: the driver "
                "moved the rest to the host's memory."
            )
        case SlowerThanSmaller(factor, reference):
            return (
                f"It took {factor:.1f} times as long per sample as micro-batch {reference:,}: the driver probably "
                "moved memory to the host."
            )


def describe_proof(proof: Proof) -> str:
    """What longer runs of a layout showed."""
    if proof.recheck is None:
        return f"{format_plural(proof.runs, 'run')} of at least {proof.steps} whole steps ended within memory"
    ended = "ended within memory" if proof.fits else f"did not fit: {proof.recheck.reason}"
    return f"{proof.steps} whole steps run for this plan {ended}"


def retry_warning(function: str, failed: int, next_size: int) -> str:
    """The warning of `find_executable_batch_size` after an attempt that ran out of memory."""
    then = f"running it again at {next_size}" if next_size > 0 else "nothing smaller is left"
    return (
        f"{function} ran out of memory at batch size {failed}; {then}. `batchlab capacity` and "
        "batchlab.find_max_batch_size find the largest size that fits beforehand, in separate processes and mostly "
        "without a failure."
    )
