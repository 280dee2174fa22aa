"""Did a size that ran without an error really fit? Some drivers move what does not fit to the host's memory.

No error is raised then: a card of 16 GB "fitted" batches with peaks of 25 and 48 GB, at 0.12 instead of 6.6 iterations
per second. There are two signs: a peak above the memory of the device, and a time per sample far above that of smaller
sizes, which otherwise only falls with the size until the device is saturated.

Limits. The second sign is an inference: anything else that slows one size down by half looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SLOWER = 1.5
"""A time per sample this many times that of a smaller size is not explained by arithmetic."""


@dataclass(frozen=True, slots=True)
class PeakAboveDevice:
    """The peak exceeds the memory of the device."""

    peak_bytes: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class SlowerThanSmaller:
    """Each sample took `factor` times as long as at `reference`, the next smaller size that ran."""

    factor: float
    reference: int


HostMemoryFallback = PeakAboveDevice | SlowerThanSmaller


def host_memory_fallback(
    peak_bytes: int | None,
    device_bytes: int | None,
    seconds_per_sample: float | None,
    smaller: Mapping[int, float],
) -> HostMemoryFallback | None:
    """The sign that a size that ran used the host's memory; None where there is none.

    `smaller`: micro-batch size → seconds per sample of smaller sizes that ran.
    """
    if peak_bytes is not None and device_bytes is not None and peak_bytes > device_bytes:
        return PeakAboveDevice(peak_bytes, device_bytes)
    if seconds_per_sample is None or not smaller:
        return None
    reference = max(smaller)
    if seconds_per_sample <= SLOWER * smaller[reference]:
        return None
    return SlowerThanSmaller(seconds_per_sample / smaller[reference], reference)
