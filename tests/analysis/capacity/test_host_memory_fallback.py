"""Sizes that ran in the host's memory."""

from __future__ import annotations

import pytest

from batchlab.analysis.capacity.host_memory_fallback import PeakAboveDevice, SlowerThanSmaller, host_memory_fallback

GIB = 2**30


def test_a_peak_above_the_memory_of_the_device_is_a_fallback() -> None:
    peak, device = int(28.49 * GIB), int(15.99 * GIB)
    assert host_memory_fallback(peak, device, None, {}) == PeakAboveDevice(peak, device)
    assert host_memory_fallback(15 * GIB, 16 * GIB, None, {}) is None


def test_time_per_sample_falls_with_the_size_unless_memory_moved() -> None:
    smaller = {4: 1 / (6.59 * 4), 8: 0.02}
    assert host_memory_fallback(None, None, 0.021, smaller) is None
    assert host_memory_fallback(None, None, 0.03, smaller) is None
    slower = host_memory_fallback(None, None, 0.4, smaller)
    assert isinstance(slower, SlowerThanSmaller)
    assert slower.factor == pytest.approx(20.0)
    assert slower.reference == 8
    assert host_memory_fallback(None, None, 0.4, {}) is None
