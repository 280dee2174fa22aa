"""Sizes that ran and do not fit all the same."""

from __future__ import annotations

from batchlab.analysis.capacity.host_memory_fallback import uses_host_memory

GIB = 2**30


def test_a_peak_above_the_devices_memory_is_spill() -> None:
    assert "28.49 GiB where the device has 15.99" in uses_host_memory(int(28.49 * GIB), int(15.99 * GIB), None, {})
    assert uses_host_memory(15 * GIB, 16 * GIB, None, {}) == ""


def test_time_per_sample_falls_with_the_size_or_memory_has_moved() -> None:
    smaller = {4: 1 / (6.59 * 4), 8: 0.02}
    assert uses_host_memory(None, None, 0.021, smaller) == ""
    assert uses_host_memory(None, None, 0.03, smaller) == ""
    assert "20.0 times slower per sample than 8" in uses_host_memory(None, None, 0.4, smaller)
    assert uses_host_memory(None, None, 0.4, {}) == ""
