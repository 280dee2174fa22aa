"""How large a micro-batch fits, and the line that memory follows.

Peak bytes of a training step are close to affine in the micro-batch size: parameters, gradients and optimizer state are
the intercept, activations the slope. Kernels that choose another algorithm at some size, and allocators that round up,
bend the line; its residual and R² say how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from batchlab.analysis.findings import Line, MemoryFinding, MemoryPoint
from batchlab.record import CapacityResult, Outcome, Record
from batchlab.spec import CapacitySpec, Spec

LINE_POINTS = 3
"""Two points lie on a line whatever the truth."""


def memory_finding(
    records: Iterable[tuple[Spec, Record]], needed: int, limit_bytes: int | None, limit_is: str = ""
) -> MemoryFinding | None:
    """The largest micro-batch that ran whole steps; None when nothing was probed.

    `needed`: no size above it was of interest. A probe that failed for another reason than memory says nothing. Where a
    size ran although a smaller one ran out of memory, only sizes below the smallest failure count.
    """
    points = memory_points(records)
    if not points:
        return None
    failed = [point.micro_batch_size for point in points if not point.fits]
    smallest_failed = min(failed, default=None)
    fitting = [p for p in points if p.fits and (smallest_failed is None or p.micro_batch_size < smallest_failed)]
    largest = max(fitting, key=lambda point: point.micro_batch_size, default=None)
    status: Literal["verified", "proved", "none"] = "none"
    if largest is not None:
        status = "proved" if smallest_failed == largest.micro_batch_size + 1 else "verified"
    peak = largest.peak_bytes if largest is not None else None
    return MemoryFinding(
        points=points,
        max_micro_batch_size=largest.micro_batch_size if largest else None,
        status=status,
        searched_up_to=max(needed, *(point.micro_batch_size for point in points)),
        smallest_failed=smallest_failed,
        line=fit_line([(p.micro_batch_size, p.peak_bytes) for p in fitting if p.peak_bytes is not None]),
        limit_bytes=limit_bytes,
        headroom_bytes=None if limit_bytes is None or peak is None else limit_bytes - peak,
        limit_is=limit_is,
    )


def memory_points(records: Iterable[tuple[Spec, Record]]) -> tuple[MemoryPoint, ...]:
    """One point per micro-batch size that was probed: on a CPU bytes above the process's warmed-up baseline, on an
    accelerator bytes of its allocator."""
    points: dict[int, MemoryPoint] = {}
    for spec, record in records:
        if not isinstance(spec, CapacitySpec) or record.outcome is Outcome.FAILED:
            continue
        result = record.result if isinstance(record.result, CapacityResult) else None
        fits = record.outcome is Outcome.COMPLETED and result is not None and result.fits
        points[spec.micro_batch_size] = MemoryPoint(
            spec.micro_batch_size, fits, _peak(result) if fits and result else None, record.reason
        )
    return tuple(points[size] for size in sorted(points))


def _peak(result: CapacityResult) -> int | None:
    """Reserved where the allocator tells, because that is what the device has to give; else allocated."""
    return result.peak_reserved_bytes or result.peak_allocated_bytes


def fit_line(points: Sequence[tuple[float, float]]) -> Line | None:
    """Least squares through at least three points with two different x; None otherwise.

    R² is 1 − residual variance ÷ variance, and 1 for a flat line that fits exactly.
    """
    if len(points) < LINE_POINTS or len({x for x, _ in points}) < 2:
        return None
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    intercept = mean_y - slope * mean_x
    residuals = [y - intercept - slope * x for x, y in points]
    total = sum((y - mean_y) ** 2 for _, y in points)
    r_squared = 1.0 - sum(r * r for r in residuals) / total if total > 0 else 1.0
    return Line(intercept, slope, r_squared, n, max(abs(r) for r in residuals))
