"""The simulated device: memory and time are linear functions with known coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError, did_you_mean, quote
from batchlab.simulated.problem import NoisyQuadratic


@dataclass(frozen=True)
class Machine:
    """Coefficients of the device.

    A pass over n samples takes fixed_bytes + n·bytes_per_sample bytes and pass_overhead_seconds +
    seconds_per_sample·max(n, knee_samples) seconds; below the knee the device is not fully used.
    """

    memory_bytes: int = 2**30
    fixed_bytes: int = 64 * 2**20
    bytes_per_sample: int = 2**20
    pass_overhead_seconds: float = 2e-4
    seconds_per_sample: float = 1e-4
    step_overhead_seconds: float = 2e-4
    knee_samples: int = 8
    all_reduce_seconds: float = 2e-4  # of several devices, for the sum of their gradients
    fails_above: float = 0.0  # an update at a higher learning rate raises an error, as an overflow check does; 0: never

    def peak_bytes(self, samples: int) -> int:
        """Bytes in use during a pass over `samples`, in training and in evaluation."""
        return self.fixed_bytes + self.bytes_per_sample * samples

    def max_micro_batch_size(self, memory_limit: int | None = None) -> int:
        """The largest number of samples per pass that fits, or 0."""
        limit = self.limit(memory_limit)
        return max((limit - self.fixed_bytes) // self.bytes_per_sample, 0)

    def limit(self, memory_limit: int | None) -> int:
        """Usable bytes: the memory of the device, or `memory_limit` if that is less."""
        return self.memory_bytes if memory_limit is None else min(self.memory_bytes, memory_limit)

    def pass_seconds(self, samples: int) -> float:
        """Seconds for the forward and backward pass of one micro-batch."""
        return self.pass_overhead_seconds + self.seconds_per_sample * max(samples, self.knee_samples)

    def step_seconds(self, layout: BatchLayout) -> float:
        """Seconds for one optimizer step, which ends when the device with the largest share is ready."""
        devices = layout.data_parallel_size
        shared = self.all_reduce_seconds if devices > 1 else 0.0
        slowest = max(range(devices) if layout.shares else (0,), key=layout.share)
        return self.step_overhead_seconds + shared + sum(map(self.pass_seconds, layout.micro_batch_sizes(slowest)))

    def samples_per_second(self, layout: BatchLayout) -> float:
        """Training throughput."""
        return layout.global_batch_size / self.step_seconds(layout)


@dataclass(frozen=True)
class Simulation:
    """A problem on a machine. The `model` of a simulated task returns one."""

    problem: NoisyQuadratic = field(default_factory=NoisyQuadratic)
    machine: Machine = field(default_factory=Machine)

    @property
    def settings(self) -> dict[str, int | float]:
        """All parameters by name, as `model.NAME` settings of an experiment."""
        return {**asdict(self.problem), **asdict(self.machine)}


def simulation(settings: Mapping[str, Any]) -> Simulation:
    """A Simulation with the given parameters and defaults for the rest. Raises InputError for a bad name or value."""
    defaults = Simulation().settings
    values: dict[str, int | float] = {}
    for name, value in settings.items():
        if name not in defaults:
            close = did_you_mean(name, defaults)
            raise InputError(f"There is no setting {quote(f'model.{name}')}.{close} Possible: {', '.join(defaults)}.")
        values[name] = _checked(name, value, whole=isinstance(defaults[name], int))
    problem_names = {known.name for known in fields(NoisyQuadratic)}
    problem = NoisyQuadratic(**{name: value for name, value in values.items() if name in problem_names})  # type: ignore[arg-type]
    machine = Machine(**{name: value for name, value in values.items() if name not in problem_names})  # type: ignore[arg-type]
    if problem.samples * problem.dimensions > _MOST_NUMBERS:
        raise InputError(
            f"model.samples {problem.samples:,} × model.dimensions {problem.dimensions:,} is more than "
            f"{_MOST_NUMBERS:,} numbers; lower one of the two."
        )
    return Simulation(problem, machine)


_MINIMUM: dict[str, float] = {
    "condition": 1.0,
    "dimensions": 1,
    "copies": 1,
    "samples": 2,
    "memory_bytes": 1,
    "bytes_per_sample": 1,
}
_MAXIMUM: dict[str, float] = {"dimensions": 10_000, "samples": 10_000_000}
_MOST = 1e15
_MOST_NUMBERS = 10**8
"""In the table of noise, samples × dimensions: 0.8 GB."""


def _checked(name: str, value: object, *, whole: bool) -> int | float:
    minimum, maximum = _MINIMUM.get(name, 0.0), _MAXIMUM.get(name, _MOST)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not minimum <= value <= maximum
        or (whole and value != int(value))
    ):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"model.{name} is {quote(value)}; give {kind} from {minimum:g} to {maximum:g}.")
    return int(value) if whole else float(value)
