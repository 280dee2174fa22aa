"""The devices of a plan: their speeds and shares, what sums between them cost, and the step that they make together."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from batchlab.analysis.calibration import Calibration
from batchlab.core.batch import Frozen
from batchlab.words.calibration import describe_bound, worker_name


class AllReducePlan(Frozen):
    """Seconds of a sum over the devices: latency_seconds + bytes ÷ bytes_per_second."""

    latency_seconds: float
    bytes_per_second: float | None = Field(description="None where larger sums took no longer")
    residual: float = Field(description="root mean square of (measured − fitted) ÷ measured")
    gradient_bytes: int = Field(description="that a step adds up")


class HardwareCalibration(Frozen):
    """tokens/s of each worker (samples/s where the unit is samples) and the share of every global batch it takes."""

    measured_performance: dict[str, float] = Field(
        description="worker → tokens/s, of the workers that the study had; empty where no speed was measured"
    )
    workload_distribution: dict[str, float] = Field(description="worker → share; every worker of the plan")
    all_reduce: AllReducePlan | None = Field(default=None, description="None where batchlab calibrate did not time it")


class StepTarget(Frozen):
    """A step of all devices together, as predicted from each one's measured speed and from what sums cost."""

    seconds: float
    compute_seconds: float = Field(description="of the device that takes longest for its share")
    data_seconds: float = Field(description="in which that device waits for its samples to be prepared")
    synchronisation_seconds: float = Field(description="sums and agreements that no backward pass hides")
    hidden_seconds: float = Field(description="sums that run during the backward pass; no part of the step")
    speedup: float = Field(description="over the fastest device with the whole batch")
    speedup_over_mean: float = Field(description="over a device of mean speed with the whole batch")
    bound: Literal["compute", "data", "synchronisation"] = Field(description="the largest part of the step")
    text: str = Field(description="what that means")


def hardware_calibration(found: Calibration) -> HardwareCalibration:
    """What was measured of the devices, and the share of each."""
    size, workers = found.layout.global_batch_size, {worker_name(rank): each for rank, each in enumerate(found.workers)}
    return HardwareCalibration(
        measured_performance={name: worker.tokens_per_second.value for name, worker in workers.items()},
        workload_distribution={name: worker.share / size for name, worker in workers.items()},
        all_reduce=_all_reduce(found),
    )


def _all_reduce(found: Calibration) -> AllReducePlan:
    rate = found.all_reduce.bytes_per_second
    return AllReducePlan(
        latency_seconds=found.all_reduce.latency_seconds,
        bytes_per_second=rate if math.isfinite(rate) else None,
        residual=found.all_reduce.residual,
        gradient_bytes=found.gradient_bytes,
    )


def step_target(found: Calibration) -> StepTarget:
    step = found.step
    return StepTarget(
        seconds=step.seconds,
        compute_seconds=step.compute_seconds,
        data_seconds=step.data_seconds,
        synchronisation_seconds=step.synchronisation_seconds,
        hidden_seconds=step.hidden_seconds,
        speedup=found.speedup,
        speedup_over_mean=found.speedup_over_mean,
        bound=step.bound.value,
        text=describe_bound(found),
    )
