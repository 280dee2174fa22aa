"""How a device is used, in words."""

from __future__ import annotations

from typing import Any

from batchlab.analysis.sweep.speed_variants import SpeedVariant
from batchlab.analysis.values import Interval, ThroughputPoint
from batchlab.core.batch import BatchLayout, Unit
from batchlab.words.speed import advice, describe_mfu, launch_bound, variant_lines

LAYOUT = BatchLayout(global_batch_size=16, micro_batch_size=16, sequence_length=32)


def point(**values: Any) -> ThroughputPoint:
    return ThroughputPoint(LAYOUT, Interval(1000.0), 0.5, 1.0, None, **values)


def test_mfu_is_of_the_measured_peak_with_the_data_sheet_beside_it() -> None:
    text = describe_mfu(point(achieved_flops=12.3e12, peak_flops=30e12, datasheet_flops=65e12))
    assert text == "41 % MFU: 12.3 of 30 TFLOP/s measured here (data sheet: 65)"
    assert describe_mfu(point(achieved_flops=12.3e12)) == "MFU unknown"


def test_launch_bound_says_what_to_try() -> None:
    assert launch_bound([8, 16]).startswith("batch 8 and 16 is launch-bound")
    assert point(issuing_share=0.95).launch_bound
    assert not point(issuing_share=0.5).launch_bound


def test_a_table_of_variants_ends_with_the_advice() -> None:
    bf16 = SpeedVariant("bf16", {"precision": "bf16"}, 1500.0, 1600.0, 0.5, faster=True)
    compiled = SpeedVariant("compile", {"compile": "default"}, 990.0, None, -0.01)
    broken = SpeedVariant("fp16", {"precision": "fp16"}, why_not="no kernel. Install another library. Set LOGS=1.")
    _, first, second, third, last = variant_lines([bf16, compiled, broken], LAYOUT, Unit.TOKENS)
    assert first.split()[:2] == ["bf16", "expected"]
    assert "+50 %" in first
    assert "no rule" in second
    assert "−1 %" in second
    assert third.endswith("no kernel")
    assert "--set device.precision=bf16" in last
    assert advice([compiled, broken]).endswith("change nothing")
    hosted = SpeedVariant("tf32", {"precision": "tf32"}, 1500.0, 1600.0, 0.5, faster=True, launch_bound=True)
    assert "larger micro-batch" in advice([hosted])
    assert "larger micro-batch" not in advice([bf16])
    assert len(variant_lines([], LAYOUT, Unit.TOKENS)) == 1
