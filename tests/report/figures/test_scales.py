"""Units of axes."""

from __future__ import annotations

from batchlab.report.figures.scales import byte_scale, time_scale


def test_time_scale_follows_the_longest() -> None:
    assert time_scale(0.01) == (3600.0, "seconds")
    assert time_scale(0.5) == (60.0, "minutes")
    assert time_scale(7.56) == (1.0, "hours")


def test_byte_scale_follows_the_largest() -> None:
    assert byte_scale(2**20) == (2.0**-20, "MiB")
    assert byte_scale(2**30) == (2.0**-30, "GiB")
