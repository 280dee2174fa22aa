"""What devices that share a batch do together, from what each does alone and from what sums between them cost.

    step = max over devices (compute + preparing samples) + agreement + sums that the backward pass does not hide

Sums begin as the last backward pass advances on every device, as in DistributedDataParallel (Li et al. 2020,
arXiv:2006.15704, section 3.2.3). A sum takes latency + bytes ÷ bandwidth. Left out are that sums slow a computation
that runs beside them, and that devices wait for whichever is slowest in each single step, not on the median: both make
a real step longer than this one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from batchlab.analysis.values import Interval
from batchlab.core.batch import BatchLayout
from batchlab.core.record import AllReduceResult, Outcome, Record, WorkersResult, WorkerTiming
from batchlab.core.spec import AllReduceSpec, Spec, WorkersSpec

LEAST_GAIN = 0.05
"""Unequal shares are chosen only where they make a step shorter by more than this share: less is within the noise of
timings, and most trainers need equal shares."""


class Bound(StrEnum):
    """What takes the largest part of a step."""

    COMPUTE = "compute"
    DATA = "data"
    SYNCHRONISATION = "synchronisation"


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Seconds of a sum over devices = latency + bytes ÷ bandwidth, fitted to the medians of several sizes."""

    latency_seconds: float
    seconds_per_byte: float
    residual: float  # root mean square of (measured − fitted) ÷ measured
    sizes: tuple[int, ...]
    repeats: int

    def seconds(self, size: int) -> float:
        return self.latency_seconds + self.seconds_per_byte * size

    @property
    def bytes_per_second(self) -> float:
        """Infinite where larger sums took no longer."""
        return 1 / self.seconds_per_byte if self.seconds_per_byte > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Worker:
    """One device with its share of a batch, beside the others at work."""

    device: str
    share: int
    tokens_per_second: Interval  # median, slowest and fastest block
    step_seconds: float
    data_seconds: float  # of a step, in which samples are prepared and nothing is computed
    backward_seconds: float  # of the last micro-batch


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """The parts of a step of all devices together."""

    compute_seconds: float  # of the device that takes longest
    data_seconds: float  # of the same device
    hidden_seconds: float  # sums that run during the backward pass; no part of the step
    exposed_seconds: float  # the other ones
    agreement_seconds: float

    @property
    def synchronisation_seconds(self) -> float:
        return self.exposed_seconds + self.agreement_seconds

    @property
    def seconds(self) -> float:
        return self.compute_seconds + self.data_seconds + self.synchronisation_seconds

    @property
    def parts(self) -> dict[Bound, float]:
        return {
            Bound.COMPUTE: self.compute_seconds,
            Bound.DATA: self.data_seconds,
            Bound.SYNCHRONISATION: self.synchronisation_seconds,
        }

    @property
    def bound(self) -> Bound:
        return max(self.parts, key=lambda part: self.parts[part])


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of the devices of a layout, and the step that follows from it."""

    layout: BatchLayout
    workers: tuple[Worker, ...]
    all_reduce: AllReduce
    gradient_bytes: int
    step: StepPrediction
    alone_seconds: tuple[float, ...]  # of each device for a step of the whole batch, beside the others at work
    other_load: float | None = None  # share of the processor that other programs used meanwhile

    @property
    def equal_layout(self) -> BatchLayout:
        """The layout that equal devices would have."""
        return self.layout.model_copy(update={"shares": ()})

    @property
    def tokens_per_second(self) -> float:
        return self.layout.tokens_per_step / self.step.seconds

    @property
    def speedup(self) -> float:
        """Over the fastest device with the whole batch to itself."""
        return min(self.alone_seconds) / self.step.seconds

    @property
    def speedup_over_mean(self) -> float:
        """Over a device of mean speed with the whole batch to itself."""
        return statistics.harmonic_mean(self.alone_seconds) / self.step.seconds


def calibrations(records: Iterable[tuple[Spec, Record]]) -> tuple[Calibration, ...]:
    """One for every batch and number of devices that were timed: at the shares of the shortest step.

    Equal shares stay unless speeds differ by more than their spread, and others make the step shorter by LEAST_GAIN.
    Devices with the whole batch each share a batch that is as many times as large.
    """
    sums: dict[int, AllReduceResult] = {}
    timed: dict[tuple[int, int], list[tuple[WorkersSpec, WorkersResult]]] = {}
    for spec, record in records:
        if record.outcome is not Outcome.COMPLETED:
            continue
        if isinstance(spec, AllReduceSpec) and isinstance(record.result, AllReduceResult):
            sums[spec.data_parallel_size] = record.result
        elif isinstance(spec, WorkersSpec) and isinstance(record.result, WorkersResult):
            key = (spec.layout.data_parallel_size, spec.layout.global_batch_size)
            timed.setdefault(key, []).append((spec, record.result))
    found = []
    for (devices, size), runs in sorted(timed.items()):
        alone = [result for spec, result in timed.get((devices, devices * size), ()) if not spec.layout.shares]
        if devices in sums and alone:
            each = [calibration(spec.layout, result, sums[devices], alone[0]) for spec, result in runs]
            found.append(_chosen(each))
    return tuple(found)


def _chosen(found: Sequence[Calibration]) -> Calibration:
    shortest = min(found, key=lambda each: each.step.seconds)
    equal = next((each for each in found if not each.layout.shares), None)
    if equal is None:  # memory does not allow it
        return shortest
    worth_it = shortest.step.seconds < (1 - LEAST_GAIN) * equal.step.seconds
    return shortest if worth_it and _differ([worker.tokens_per_second for worker in equal.workers]) else equal


def _differ(speeds: Sequence[Interval]) -> bool:
    """Whether the fastest block of the slowest device is slower than the slowest one of the fastest."""
    slowest, fastest = (pick(speeds, key=lambda speed: speed.value) for pick in (min, max))
    return (slowest.high or slowest.value) < (fastest.low or fastest.value)


def calibration(layout: BatchLayout, timed: WorkersResult, sums: AllReduceResult, alone: WorkersResult) -> Calibration:
    """The step of a layout. alone: the devices with the whole batch each."""
    all_reduce = fit_all_reduce(sums)
    workers = tuple(
        _worker(device.name, timing, layout.sequence_length)
        for device, timing in zip(sums.devices, timed.workers, strict=True)
    )
    slowest = max(workers, key=lambda worker: worker.step_seconds)
    exposed = exposed_seconds(sums.parts, all_reduce, workers)
    step = StepPrediction(
        compute_seconds=slowest.step_seconds - slowest.data_seconds,
        data_seconds=slowest.data_seconds,
        hidden_seconds=max(sum(map(all_reduce.seconds, sums.parts)) - exposed, 0.0),
        exposed_seconds=exposed,
        agreement_seconds=sums.agreement_seconds,
    )
    alone_seconds = tuple(statistics.median(timing.step_seconds) for timing in alone.workers)
    return Calibration(layout, workers, all_reduce, sum(sums.parts), step, alone_seconds, timed.other_load)


def fit_all_reduce(sums: AllReduceResult) -> AllReduce:
    """By least squares of the relative residuals, because times range over decades, with neither part negative."""
    from scipy.optimize import nnls

    sizes = [timing.size_bytes for timing in sums.sums]
    seconds = np.array([max(statistics.median(timing.seconds), 1e-12) for timing in sums.sums])
    rows = np.column_stack([1 / seconds, np.array(sizes) / sizes[-1] / seconds])
    (latency, largest), _ = nnls(rows, np.ones(len(sizes)))
    residual = float(np.sqrt(np.mean((rows @ [latency, largest] - 1) ** 2)))
    repeats = min(len(timing.seconds) for timing in sums.sums)
    return AllReduce(float(latency), float(largest) / sizes[-1], residual, tuple(sizes), repeats)


def exposed_seconds(parts: Sequence[int], all_reduce: AllReduce, workers: Sequence[Worker]) -> float:
    """What is left of sums of so many bytes, one after the other, when the last device is ready.

    Each begins when the last backward pass of every device has come as far through the bytes, and the sum before it has
    ended.
    """
    ended, passed, total = 0.0, 0, sum(parts)
    for size in parts:
        passed += size
        ready = max(worker.step_seconds - worker.backward_seconds * (1 - passed / total) for worker in workers)
        ended = max(ended, ready) + all_reduce.seconds(size)
    return ended - max(worker.step_seconds for worker in workers)


def _worker(device: str, timing: WorkerTiming, sequence_length: int) -> Worker:
    seconds = statistics.median(timing.step_seconds)
    rates = [timing.share * sequence_length / each for each in timing.step_seconds]
    return Worker(
        device=device,
        share=timing.share,
        tokens_per_second=Interval(statistics.median(rates), min(rates), max(rates), len(rates)),
        step_seconds=seconds,
        data_seconds=max(seconds - statistics.median(timing.held_step_seconds), 0.0),
        backward_seconds=max(timing.pass_seconds - timing.forward_seconds, 0.0),
    )
