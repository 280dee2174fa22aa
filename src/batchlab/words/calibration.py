"""What devices that share a batch do together, in words."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from batchlab.analysis.calibration import AllReduce, Bound, Calibration
from batchlab.analysis.sweep.throughput import BUSY_SHARE
from batchlab.core.batch import Unit
from batchlab.core.format import format_bytes, format_list, format_milliseconds, format_percent, format_plural
from batchlab.core.record import SumTiming

ALL_REDUCE = "all-reduce: seconds against bytes"


def workers_title(shares: tuple[int, ...]) -> str:
    """The title of one round of timings."""
    return f"workers: steps of {format_list(shares)} samples, at the same time"


def worker_name(rank: int) -> str:
    return f"worker-{rank}"


def calibration_lines(found: Calibration, unit: Unit) -> list[str]:
    """Speeds and shares of the devices, what sums cost, and the step that follows."""
    step = found.step
    return [
        *_worker_lines(found, unit),
        f"all-reduce  {describe_all_reduce(found.all_reduce)}",
        f"step        {format_milliseconds(step.seconds)} predicted: {format_milliseconds(step.compute_seconds)} of "
        f"computing, {format_milliseconds(step.data_seconds)} of preparing samples, "
        f"{format_milliseconds(step.synchronisation_seconds)} of communication "
        f"({format_milliseconds(step.hidden_seconds)} more is hidden behind the backward pass)",
        f"speed-up    {found.speedup:.2f} × the fastest device with the whole batch, {found.speedup_over_mean:.2f} × "
        f"the mean one: {found.tokens_per_second:,.0f} {unit.value}/s",
        describe_bound(found),
        *([_slower_together(found)] if found.speedup < 1 else []),
        *_disturbed(found.other_load or 0.0),
    ]


def _slower_together(found: Calibration) -> str:
    fastest = worker_name(found.alone_seconds.index(min(found.alone_seconds)))
    return f"{fastest} alone would take {format_milliseconds(min(found.alone_seconds))} for the same step: train on it."


def _disturbed(other_load: float) -> list[str]:
    share = format_percent(other_load)
    sentence = f"Other programs used {share} of the processor meanwhile, so these times are unreliable."
    return [sentence] if other_load > BUSY_SHARE else []


def _worker_lines(found: Calibration, unit: Unit) -> list[str]:
    lines = []
    for rank, worker in enumerate(found.workers):
        speed = worker.tokens_per_second
        spread = f" [{speed.low:,.0f}, {speed.high:,.0f}]" if speed.low is not None and speed.high is not None else ""
        lines.append(
            f"{worker_name(rank):11} {worker.device}: {speed.value:,.0f} {unit.value}/s{spread}, n = {speed.n}; takes "
            f"{worker.share:,} of {format_plural(found.layout.global_batch_size, 'sample')}"
        )
    return lines


def describe_all_reduce(fit: AllReduce) -> str:
    """The line through the times of sums, and how well it holds."""
    rate = f" + bytes ÷ {format_bytes(fit.bytes_per_second)}/s" if math.isfinite(fit.bytes_per_second) else ""
    sizes = f"{format_plural(len(fit.sizes), 'size')} from {_bytes(fit.sizes[0])} to {_bytes(fit.sizes[-1])}"
    return (
        f"{format_milliseconds(fit.latency_seconds)}{rate}; it misses the times of {sizes} by "
        f"{format_percent(fit.residual)} (root mean square), n = {fit.repeats} each"
    )


def describe_sum(timing: SumTiming) -> str:
    """The fastest and slowest sum of one size."""
    low, high = format_milliseconds(min(timing.seconds)), format_milliseconds(max(timing.seconds))
    return f"{_bytes(timing.size_bytes)}: {low} to {high}"


def describe_bound(found: Calibration) -> str:
    """What takes the largest part of a step, and what that means."""
    step, devices = found.step, len(found.workers)
    part = step.parts[step.bound]
    numbers = (
        f"{format_percent(part / step.seconds)} of a step "
        f"({format_milliseconds(part)} of {format_milliseconds(step.seconds)})"
    )
    lost = step.synchronisation_seconds / step.seconds
    match step.bound:
        case Bound.COMPUTE:
            return (
                f"Compute-bound: {numbers} is computing, so {devices} devices are worth their speed but for the "
                f"{format_percent(lost)} that communication takes."
            )
        case Bound.DATA:
            return (
                f"Data-bound: for {numbers} the devices wait for their samples to be prepared, so faster devices would "
                "not help; prepare the samples ahead, or keep them on a faster disk."
            )
        case Bound.SYNCHRONISATION:
            return (
                f"Synchronisation-bound: {numbers} is the sum of {_bytes(found.gradient_bytes)} of gradients over "
                f"{devices} devices, so more devices would not help; a larger batch, which takes fewer steps, or a "
                "faster link between them would."
            )


def describe_measured_speeds(found: Calibration) -> str:
    """Where the speeds in a plan come from."""
    return f"steps of all {len(found.workers)} devices at once, each with its share, without communication"


def describe_shares(found: Calibration) -> str:
    """Where the shares in a plan come from."""
    if found.layout.shares:
        return "in proportion to measured speed, by largest remainder, within the memory of each device"
    return "equal, because speeds do not differ enough for other shares to make a step noticeably shorter"


PREDICTED_STEP = "longest time of a device for its share + communication that the backward pass does not hide"
PREDICTED_SPEED = "tokens per step ÷ the predicted step"
PREDICTED_HOURS = "steps × the predicted step, without evaluation and start-up"
ALL_REDUCE_SOURCE = "sums of several sizes over the devices, fitted as latency + bytes ÷ bandwidth"


def where_the_plan_is(folder: Path, found: Calibration, devices: int) -> str:
    """How to get the plan. devices: those of the study, whose own plan is for as many."""
    here = found.layout.data_parallel_size
    command = f"batchlab plan {shlex.quote(str(folder))}" + (f" --devices {here}" if here != devices else "")
    return f"plan        {command} --batch-size {found.layout.global_batch_size}"


def _bytes(size: int) -> str:
    return f"{size / 2**10:.4g} KiB" if size < 2**20 else format_bytes(size)
