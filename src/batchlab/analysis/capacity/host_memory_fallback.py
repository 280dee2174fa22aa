"""Did a size that ran without an error really fit? Some drivers move what does not fit into the host's memory.

Nothing is raised then: a card of 16 GB "fitted" batches with peaks of 25 and 48 GB, at 0.12 instead of 6.6 iterations
a second. Two signs tell: a peak above what the device has, and time per sample far above that of smaller sizes, which
only falls with the size until the device is filled.
"""

from __future__ import annotations

from collections.abc import Mapping

SLOWER = 1.5
"""Time per sample this many times that of a smaller size is not arithmetic."""


def uses_host_memory(
    peak_bytes: int | None,
    device_bytes: int | None,
    seconds_per_sample: float | None,
    smaller: Mapping[int, float],
) -> str:
    """Why a size that ran does not count as fitting, one sentence; empty where it does.

    `smaller`: micro-batch size → seconds per sample of smaller sizes that ran.
    """
    if peak_bytes is not None and device_bytes is not None and peak_bytes > device_bytes:
        return (
            f"It ran with a peak of {peak_bytes / 2**30:.2f} GiB where the device has {device_bytes / 2**30:.2f}: "
            "the driver moved the rest into the host's memory."
        )
    if seconds_per_sample is None or not smaller:
        return ""
    reference = max(smaller)
    if seconds_per_sample <= SLOWER * smaller[reference]:
        return ""
    return (
        f"It ran {seconds_per_sample / smaller[reference]:.1f} times slower per sample than {reference}: the driver "
        "probably moved memory to the host."
    )
