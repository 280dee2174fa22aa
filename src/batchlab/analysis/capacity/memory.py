"""What the records of traces and probes say about memory: the largest micro-batch, and the line that memory follows.

Peak bytes of a training step are close to affine in the micro-batch size above a knee: parameters, gradients and
optimizer state are the intercept, activations the slope. Below it the peak is in the optimizer's step, which hardly
depends on the size.

Limits. Kernels that choose another algorithm at some size, and allocators that round up, bend the line; its residuals
and R² show how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean, linear_regression, median
from typing import Any, Literal

from batchlab.analysis.capacity.capacity import Capacity, Line, MemoryPoint, MemoryVariant, Remedy, phase_bytes
from batchlab.analysis.capacity.host_memory_fallback import host_memory_fallback
from batchlab.core.experiment import DeviceConfig, Experiment
from batchlab.core.record import CapacityResult, Outcome, Record, TracePoint, TraceResult
from batchlab.core.spec import CapacitySpec, Spec, TraceSpec
from batchlab.storage.decisions import CapacityDecision

LINE_POINTS = 3
"""Two points are on a line in any case."""

Records = Sequence[tuple[Spec, Record]]


def capacity_finding(
    experiment: Experiment, records: Records, decided: CapacityDecision, variants: Sequence[MemoryVariant] = ()
) -> Capacity | None:
    """The largest micro-batch that ran whole steps, else the largest predicted; None when nothing was asked.

    `decided` is what the capacity stage decided: limit, headroom, the largest size searched, accumulation. A probe that
    failed for another reason than memory is ignored. Where a size ran although a smaller one ran out of memory, only
    sizes below the smallest failure count. Where memory depends on values, none above the decided one counts: its peak
    left too little room to rise on other batches.
    """
    accumulation, reserved = decided.grad_accum_steps, decided.reserved
    asked = [pair for pair in records if _was_asked(pair[0], experiment.device, accumulation)]
    points, traced, untraceable = memory_points(asked), traced_points(asked), _untraceable(asked)
    if not points and not traced:
        return None
    smallest_failed = min((point.micro_batch_size for point in points if not point.fits), default=None)
    ran = [p for p in points if p.fits and (smallest_failed is None or p.micro_batch_size < smallest_failed)]
    fitting = [point.micro_batch_size for point in ran]
    if decided.varies:
        fitting = [size for size in fitting if size <= (decided.max_micro_batch_size or 0)]
    largest = max(fitting, default=None)
    status: Literal["none", "predicted", "verified", "proved"] = "none"
    if largest is not None:
        status = "proved" if smallest_failed == largest + 1 else "verified"
    found = Capacity(
        points=points,
        max_micro_batch_size=largest,
        status=status,
        searched_up_to=max([decided.searched_up_to, *(point.micro_batch_size for point in points)]),
        smallest_failed=smallest_failed,
        forked_only=_forked_only(asked, [point.micro_batch_size for point in points if not point.fits]),
        limit_bytes=decided.limit_bytes,
        limit_is=decided.limit_is,
        headroom_bytes=decided.headroom_bytes,
        traced=traced,
        untraceable=untraceable,
        reserved=reserved,
        too_slow=decided.too_slow if (largest or 0) <= decided.searched_up_to else None,
        grad_accum_steps=accumulation or max(_accumulated(spec) for spec, _ in asked),
        worker_bytes=max((_process_bytes(record.result) for _, record in asked), default=0) or None,
        variants=tuple(variants),
        remedies=() if largest else _remedies([p for p in records if p not in asked], experiment.device, reserved),
        up_to=decided.up_to,
        margin_bytes=decided.margin_bytes,
        draws=max((spec.steps for spec, _ in asked if isinstance(spec, CapacitySpec) and spec.draws), default=0),
        global_batch_sizes=experiment.batch.global_batch_sizes,
        sequence_length=experiment.sequence_length,
        steps=sum(r.result.steps for _, r in asked if isinstance(r.result, CapacityResult)),
    )
    if not points and found.budget_bytes is not None and found.curve is not None:
        predicted = found.curve.largest_within(found.budget_bytes, found.searched_up_to)
        found = replace(found, max_micro_batch_size=predicted or None, status="predicted" if predicted else "none")
    return replace(found, **_line(found, ran))


def _line(found: Capacity, ran: Sequence[MemoryPoint]) -> dict[str, Any]:
    """The line through the measured sizes from the knee up; where they are too few, through the traced ones, shifted
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
    asked, ran = ((d.precision, d.memory_optimizations) for d in (device, spec.device))
    return ran == asked and accumulation in (None, spec.grad_accum_steps)


def _accumulated(spec: Spec) -> int:
    return spec.grad_accum_steps if isinstance(spec, CapacitySpec | TraceSpec) else 1


def _remedies(records: Iterable[tuple[Spec, Record]], asked: DeviceConfig, reserved: bool) -> tuple[Remedy, ...]:
    """The bytes that the smallest size needs with one more memory optimization each, by their traces."""
    return tuple(
        Remedy(_changed(spec, asked), round(max(phase_bytes(record.result.points[:1], reserved)[0][1])))
        for spec, record in records
        if isinstance(spec, TraceSpec) and isinstance(record.result, TraceResult) and record.result.points
    )


def _changed(spec: TraceSpec, asked: DeviceConfig) -> str:
    """The name of the memory variant that differs from the study's settings as this trace does."""
    more = [
        optimization.replace("_", " ")
        for optimization in spec.device.memory_optimizations
        if optimization not in asked.memory_optimizations
    ]
    if spec.device.precision != asked.precision:
        more.append(spec.device.precision)
    return ", ".join(more) or "no gradient accumulation"


def spread_of(draw_bytes: Sequence[int]) -> float:
    """By what share the batch that needed most exceeded the median one; 0 where nothing was drawn."""
    return max(draw_bytes) / median(draw_bytes) - 1 if draw_bytes else 0.0


def traced_points(records: Iterable[tuple[Spec, Record]]) -> tuple[TracePoint, ...]:
    """Every traced size once, ascending; where steps were run instead of a trace, only those."""
    results = [record.result for _, record in records if isinstance(record.result, TraceResult)]
    ran = any(point.draw_bytes for result in results for point in result.points)
    points = {
        point.micro_batch_size: point for result in results for point in result.points if bool(point.draw_bytes) == ran
    }
    return tuple(points[size] for size in sorted(points))


def traced_before(records: Iterable[tuple[Spec, Record]], asked: TraceSpec) -> TraceResult:
    """What is known of the sizes that are asked, from all traces of the same workload with the same settings."""

    def settings(spec: TraceSpec) -> TraceSpec:
        return spec.model_copy(update={"micro_batch_sizes": (1,)})

    same = [pair for pair in records if isinstance(pair[0], TraceSpec) and settings(pair[0]) == settings(asked)]
    points = tuple(point for point in traced_points(same) if point.micro_batch_size in asked.micro_batch_sizes)
    results = [record.result for _, record in same if isinstance(record.result, TraceResult)]
    units = next((result.units for result in results if result.units), ())
    return TraceResult(points=points, varies=any(result.varies for result in results), units=units)


def _process_bytes(result: object) -> int:
    if not isinstance(result, CapacityResult) or not result.fits:
        return 0
    return (result.baseline_bytes or 0) + max(result.peak_bytes or 0, result.peak_in_use_bytes or 0)


def _untraceable(records: Iterable[tuple[Spec, Record]]) -> str:
    reasons = [record.result.untraceable for _, record in records if isinstance(record.result, TraceResult)]
    return next((reason for reason in reasons if reason), "")


def memory_points(records: Iterable[tuple[Spec, Record]]) -> tuple[MemoryPoint, ...]:
    """One point per micro-batch size that was probed: on a CPU bytes above the baseline of a warmed-up process, on an
    accelerator bytes of its allocator. A size that ran in the host's memory does not fit."""
    probes = {
        spec.micro_batch_size: (spec, record)
        for spec, record in sorted(records, key=_weight)
        if isinstance(spec, CapacitySpec) and record.outcome is not Outcome.FAILED
    }
    points, seconds = [], dict[int, float]()
    for size, (spec, record) in sorted(probes.items()):
        result = record.result if isinstance(record.result, CapacityResult) else None
        fits = record.outcome is Outcome.COMPLETED and result is not None and result.fits
        peak = result.peak_bytes if fits and result else None
        fallback = None
        if fits and result is not None and spec.device.name.startswith(_ACCELERATORS):
            device_bytes = record.environment.device_memory_bytes if record.environment else None
            fallback = host_memory_fallback(peak, device_bytes, result.seconds_per_sample, seconds)
            if result.seconds_per_sample is not None and fallback is None:
                seconds[size] = result.seconds_per_sample
        shapes, loss = (result.batch_shapes, result.final_train_loss) if result else (None, None)
        finite = loss is None or isfinite(loss)
        points.append(
            MemoryPoint(
                micro_batch_size=size,
                fits=fits and fallback is None,
                peak_bytes=peak,
                reason=record.reason,
                batch_shapes=shapes,
                train_loss=loss if finite else None,
                finite_loss=finite,
                host_memory=fallback,
            )
        )
    return tuple(points)


_ACCELERATORS = ("cuda", "gpu", "mps", "xpu")
"""Devices with a fallback to the host's memory. A CPU could only swap to disk, and other programs change its speed."""


def _weight(pair: tuple[Spec, Record]) -> tuple[bool, int]:
    """The order of probes: of two at one size the one in a new process counts, then the longer one."""
    spec, _ = pair
    return (spec.new_process, spec.steps) if isinstance(spec, CapacitySpec) else (False, 0)


def _forked_only(records: Records, failed: Sequence[int]) -> tuple[int, ...]:
    """Of the sizes that failed, those that had fit in a forked process."""
    forked = {
        spec.micro_batch_size
        for spec, record in records
        if isinstance(spec, CapacitySpec) and record.process == "forked" and record.outcome is Outcome.COMPLETED
    }
    return tuple(size for size in failed if size in forked)


def fit_line(points: Sequence[tuple[float, float]]) -> Line | None:
    """Least squares through at least three points with two different x; None otherwise.

    R² is 1 − residual variance ÷ variance, or 1 for a flat line that fits exactly.
    """
    if len(points) < LINE_POINTS or len({x for x, _ in points}) < 2:
        return None
    xs, ys = zip(*points, strict=True)
    slope, intercept = linear_regression(xs, ys)
    residuals = tuple((x, y - intercept - slope * x) for x, y in points)
    mean = fmean(ys)
    total = sum((y - mean) ** 2 for y in ys)
    r_squared = 1.0 - sum(r * r for _, r in residuals) / total if total > 0 else 1.0
    return Line(intercept, slope, r_squared, residuals)
