"""The unit in which the numbers of an axis read well."""

from __future__ import annotations


def time_scale(longest_hours: float) -> tuple[float, str]:
    """(factor from hours, unit) for an axis up to `longest_hours`."""
    if longest_hours * 60 < 2:
        return 3600.0, "seconds"
    return (60.0, "minutes") if longest_hours < 2 else (1.0, "hours")


def byte_scale(largest: float) -> tuple[float, str]:
    """(factor from bytes, unit) for an axis up to `largest` bytes."""
    return (2.0**-30, "GiB") if largest >= 0.5 * 2**30 else (2.0**-20, "MiB")
