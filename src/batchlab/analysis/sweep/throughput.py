"""How fast each batch size trains, and from which size on a larger one is hardly faster."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from batchlab.analysis.sweep.datasheet import datasheet_flops
from batchlab.analysis.values import Interval, ThroughputFinding, ThroughputPoint
from batchlab.core.record import Outcome, Record, ThroughputResult
from batchlab.core.spec import Spec, ThroughputSpec

KNEE_SHARE = 0.9
"""The knee is the smallest size within 10 % of the fastest: beyond it a larger batch gains less than that."""

BUSY_SHARE = 0.1
"""Where other programs used more of the processor than this, a measured speed is unreliable."""

FALL_SHARE = 0.8
"""A size whose fastest block is more than 20 % slower than a smaller size: host-memory fallback, or a slow kernel."""


def throughput_finding(records: Iterable[tuple[Spec, Record]]) -> ThroughputFinding | None:
    """Speed per global batch size, measured alone on the device; None when nothing was measured.

    The interval of a point is its slowest and fastest block around the median, not a confidence interval.
    """
    points = sorted(
        (
            _point(spec, record.result, record.environment.device if record.environment else "")
            for spec, record in records
            if isinstance(spec, ThroughputSpec)
            and record.outcome is Outcome.COMPLETED
            and isinstance(record.result, ThroughputResult)
        ),
        key=lambda point: point.layout.global_batch_size,
    )
    if not points:
        return None
    fastest = max(points, key=lambda point: point.tokens_per_second.value)
    enough = KNEE_SHARE * fastest.tokens_per_second.value
    knee = next(point for point in points if point.tokens_per_second.value >= enough)
    busy = tuple(p.layout.global_batch_size for p in points if (p.other_load or 0.0) > BUSY_SHARE)
    fallen, best_so_far = [], 0.0
    for point in points:
        if point.layout.global_batch_size in busy:
            continue
        if (point.tokens_per_second.high or point.tokens_per_second.value) < FALL_SHARE * best_so_far:
            fallen.append(point.layout.global_batch_size)
        best_so_far = max(best_so_far, point.tokens_per_second.value)
    return ThroughputFinding(
        tuple(points), fastest.layout.global_batch_size, knee.layout.global_batch_size, tuple(fallen), busy
    )


def _point(spec: ThroughputSpec, result: ThroughputResult, device: str) -> ThroughputPoint:
    blocks = result.tokens_per_second_blocks or (result.tokens_per_second,)
    return ThroughputPoint(
        layout=spec.layout,
        tokens_per_second=Interval(statistics.median(blocks), min(blocks), max(blocks), len(blocks)),
        step_seconds=result.step_seconds,
        warmup_seconds=result.warmup_seconds,
        peak_bytes=result.peak_bytes,
        other_load=result.other_load,
        stable=result.stable,
        issuing_share=result.issuing_share,
        achieved_flops=result.flops_per_token and result.flops_per_token * statistics.median(blocks),
        peak_flops=result.peak_flops,
        datasheet_flops=datasheet_flops(device, spec.device.precision),
    )
