"""What the records of traces and probes say about memory: the largest micro-batch, and the line that memory follows.

Peak bytes of a training step are close to affine in the micro-batch size above a knee: parameters, gradients and
optimizer state are the intercept, activations the slope. Below it the optimizer's own step is the peak, which hardly
depends on the size. Kernels that choose another algorithm at some size, and allocators that round up, bend the line;
its residual and R² say how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal

from batchlab.analysis.capacity.capacity import Capacity, Line, MemoryPoint, MemoryVariant, Remedy, phase_bytes
from batchlab.analysis.capacity.host_memory_fallback import uses_host_memory
from batchlab.core.experiment import DeviceConfig, Experiment
from batchlab.core.record import CapacityResult, Outcome, Record, TracePoint, TraceResult
from batchlab.core.spec import CapacitySpec, Spec, TraceSpec
from batchlab.storage.decisions import CapacityDecision

LINE_POINTS = 3
"""Two points lie on a line whatever the truth."""

Records = Sequence[tuple[Spec, Record]]


def capacity_finding(
    experiment: Experiment, records: Records, decided: CapacityDecision, variants: Sequence[MemoryVariant] = ()
) -> Capacity | None:
    """The largest micro-batch that ran whole steps, else the largest predicted; None when nothing was asked.

    `decided` is what the capacity stage decided: limit, headroom, how far was searched, accumulation. A probe that
    failed for another reason than memory says nothing. Where a size ran although a smaller one ran out of memory, only
    sizes below the smallest failure count.
    """
    accumulation, reserved = decided.grad_accum_steps, decided.reserved
    asked = [pair for pair in records if _was_asked(pair[0], experiment.device, accumulation)]
    points, traced, untraceable = memory_points(asked), traced_points(asked), _untraceable(asked)
    if not points and not traced:
        return None
    smallest_failed = min((point.micro_batch_size for point in points if not point.fits), default=None)
    ran = [p for p in points if p.fits and (smallest_failed is None or p.micro_batch_size < smallest_failed)]
    largest = max((point.micro_batch_size for point in ran), default=None)
    status: Literal["none", "predicted", "verified", "proved"] = "none"
    if largest is not None:
        status = "proved" if smallest_failed == largest + 1 else "verified"
    found = Capacity(
        points=points,
        max_micro_batch_size=largest,
        status=status,
        searched_up_to=max([decided.searched_up_to, *(point.micro_batch_size for point in points)]),
        smallest_failed=smallest_failed,
        limit_bytes=decided.limit_bytes,
        limit_is=decided.limit_is,
        headroom_bytes=decided.headroom_bytes,
        traced=traced,
        untraceable=untraceable,
        reserved=reserved,
        grad_accum_steps=accumulation or 1,
        worker_bytes=max((_process_bytes(record.result) for _, record in asked), default=0) or None,
        variants=tuple(variants),
        remedies=() if largest else _remedies([p for p in records if p not in asked], experiment.device, reserved),
        global_batch_sizes=experiment.batch.global_batch_sizes,
        sequence_length=experiment.sequence_length,
        steps=sum(r.result.steps for _, r in asked if isinstance(r.result, CapacityResult)),
    )
    if not points and found.budget_bytes is not None and found.curve is not None:
        predicted = found.curve.largest_within(found.budget_bytes, found.searched_up_to)
        found = replace(found, max_micro_batch_size=predicted or None, status="predicted" if predicted else "none")
    return replace(found, **_line(found, ran))


def _line(found: Capacity, ran: Sequence[MemoryPoint]) -> dict[str, Any]:
    """The line through what was measured from the knee up; with too few measurements through what was traced, moved
    by what the trace does not see."""
    knee = found.knee or 1
    measured = fit_line(
        [(p.micro_batch_size, p.peak_bytes) for p in ran if p.peak_bytes is not None and p.micro_batch_size >= knee]
    )
    if measured is not None or found.curve is None:
        return {"line": measured, "line_is": "measured"}
    sizes = [size for size in found.curve.sizes if size >= knee]
    unseen = found.unseen_bytes or 0
    return {"line": fit_line([(size, found.curve.at(size) + unseen) for size in sizes]), "line_is": "traced"}


def _was_asked(spec: Spec, device: DeviceConfig, accumulation: int | None) -> bool:
    """A probe or trace with the accumulation that was asked about, and the study's own memory optimizations."""
    if not isinstance(spec, CapacitySpec | TraceSpec):
        return False
    as_it_is = (spec.device.precision, spec.device.memory_optimizations) == (
        device.precision,
        device.memory_optimizations,
    )
    return as_it_is and accumulation in (None, spec.grad_accum_steps)


def _remedies(records: Iterable[tuple[Spec, Record]], asked: DeviceConfig, reserved: bool) -> tuple[Remedy, ...]:
    """What traces with one more saving each say of the smallest size."""
    return tuple(
        Remedy(_saving(spec, asked), round(max(phase_bytes(record.result.points[:1], reserved)[0][1])))
        for spec, record in records
        if isinstance(spec, TraceSpec) and isinstance(record.result, TraceResult) and record.result.points
    )


def _saving(spec: TraceSpec, asked: DeviceConfig) -> str:
    more = [
        saving.replace("_", " ")
        for saving in spec.device.memory_optimizations
        if saving not in asked.memory_optimizations
    ]
    if spec.device.precision != asked.precision:
        more.append(spec.device.precision)
    return ", ".join(more) or "one pass per step"


def traced_points(records: Iterable[tuple[Spec, Record]]) -> tuple[TracePoint, ...]:
    """Every traced size once, ascending."""
    points = {
        point.micro_batch_size: point
        for _, record in records
        if isinstance(record.result, TraceResult)
        for point in record.result.points
    }
    return tuple(points[size] for size in sorted(points))


def _process_bytes(result: object) -> int:
    if not isinstance(result, CapacityResult) or not result.fits:
        return 0
    return (result.baseline_bytes or 0) + max(result.peak_bytes or 0, result.peak_in_use_bytes or 0)


def _untraceable(records: Iterable[tuple[Spec, Record]]) -> str:
    reasons = [record.result.untraceable for _, record in records if isinstance(record.result, TraceResult)]
    return next((reason for reason in reasons if reason), "")


def memory_points(records: Iterable[tuple[Spec, Record]]) -> tuple[MemoryPoint, ...]:
    """One point per micro-batch size that was probed: on a CPU bytes above the process's warmed-up baseline, on an
    accelerator bytes of its allocator. A size that ran while memory spilled to the host does not fit."""
    probes = {
        spec.micro_batch_size: (spec, record)
        for spec, record in sorted(records, key=_steps_of)
        if isinstance(spec, CapacitySpec) and record.outcome is not Outcome.FAILED
    }
    points, seconds = [], dict[int, float]()
    for size, (spec, record) in sorted(probes.items()):
        result = record.result if isinstance(record.result, CapacityResult) else None
        fits = record.outcome is Outcome.COMPLETED and result is not None and result.fits
        peak = result.peak_bytes if fits and result else None
        reason = record.reason
        if fits and result is not None and spec.device.name.startswith(_ACCELERATORS):
            device_bytes = record.environment.device_memory_bytes if record.environment else None
            reason = uses_host_memory(peak, device_bytes, result.seconds_per_sample, seconds)
            if result.seconds_per_sample is not None and not reason:
                seconds[size] = result.seconds_per_sample
        shapes, loss = (result.batch_shapes, result.final_train_loss) if result else (None, None)
        finite = loss is None or isfinite(loss)
        points.append(MemoryPoint(size, fits and not reason, peak, reason, shapes, loss if finite else None, finite))
    return tuple(points)


_ACCELERATORS = ("cuda", "mps", "xpu")
"""A CPU has no other memory to spill to than the disk's, and its speed says little beside other programs."""


def _steps_of(pair: tuple[Spec, Record]) -> int:
    """Of two probes at one size the longer one counts."""
    return pair[0].steps if isinstance(pair[0], CapacitySpec) else 0


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
    residuals = tuple((x, y - intercept - slope * x) for x, y in points)
    total = sum((y - mean_y) ** 2 for _, y in points)
    r_squared = 1.0 - sum(r * r for _, r in residuals) / total if total > 0 else 1.0
    return Line(intercept, slope, r_squared, residuals)
