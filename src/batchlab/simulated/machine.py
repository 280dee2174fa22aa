"""The simulated device: memory and time are linear functions with known coefficients.

Several of them may differ in speed and memory, and are joined by a link with a latency and a bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from batchlab.core.batch import BatchLayout
from batchlab.core.errors import InputError, did_you_mean, quote
from batchlab.simulated.problem import NoisyQuadratic

FORWARD = 1 / 3
"""Of a pass, the share that evaluation takes too."""


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
    all_reduce_seconds: float = 2e-4  # latency of each sum over several devices
    link_bytes_per_second: float = 1e12
    gradient_bytes: int = 4096  # that the devices add up in a step
    gradient_parts: int = 1  # equal sums of a step; each begins when all devices have its part of a backward pass
    worker_speeds: str = ""  # of each device in turn, 1 being the one above: "1, 0.8, 0.5"; what is missing is 1
    worker_memories: str = ""  # likewise, as shares of memory_bytes
    timing_noise: float = 0.0  # standard deviation of the logarithm of each duration
    timing_seed: int = 0
    fails_above: float = 0.0  # an update at a higher learning rate raises an error, as an overflow check does; 0: never

    def speed(self, worker: int) -> float:
        """Of a device, relative to the one that the coefficients describe."""
        return _part(self.worker_speeds, worker)

    def memory_of(self, worker: int) -> int:
        """Bytes of a device's memory."""
        return int(self.memory_bytes * _part(self.worker_memories, worker))

    def peak_bytes(self, samples: int) -> int:
        """Bytes in use during a pass over `samples`, in training and in evaluation."""
        return self.fixed_bytes + self.bytes_per_sample * samples

    def max_micro_batch_size(self, memory_limit: int | None = None, worker: int = 0) -> int:
        """The largest number of samples per pass that fits, or 0."""
        limit = self.limit(memory_limit, worker)
        return max((limit - self.fixed_bytes) // self.bytes_per_sample, 0)

    def limit(self, memory_limit: int | None, worker: int = 0) -> int:
        """Usable bytes: the memory of the device, or `memory_limit` if that is less."""
        own = self.memory_of(worker)
        return own if memory_limit is None else min(own, memory_limit)

    def pass_seconds(self, samples: int, worker: int = 0) -> float:
        """Seconds for the forward and backward pass of one micro-batch."""
        passed = self.pass_overhead_seconds + self.seconds_per_sample * max(samples, self.knee_samples)
        return passed / self.speed(worker)

    def sum_seconds(self, size: int) -> float:
        """Seconds for the sum of so many bytes over several devices."""
        return self.all_reduce_seconds + size / self.link_bytes_per_second

    def last_sum_ends(
        self, passes: Sequence[tuple[float, float]], seconds: Callable[[int], float] | None = None
    ) -> float:
        """When a step's last sum has ended, on the clock of `passes`: of each device the moment at which its last
        backward pass begins, and how long that takes. seconds: of a sum of so many bytes.
        """
        seconds, ended = seconds or self.sum_seconds, 0.0
        for part in range(1, self.gradient_parts + 1):
            ready = max(begun + length * part / self.gradient_parts for begun, length in passes)
            ended = max(ended, ready) + seconds(self.gradient_bytes // self.gradient_parts)
        return ended

    def step_seconds(self, layout: BatchLayout) -> float:
        """Seconds for one optimizer step without noise."""
        workers, ready = range(layout.data_parallel_size), []
        for worker in workers:
            *others, last = (self.pass_seconds(size, worker) for size in layout.micro_batch_sizes(worker))
            ready.append((sum(others) + last * FORWARD, last * (1 - FORWARD)))
        summed = self.last_sum_ends(ready) if len(workers) > 1 else sum(ready[0])
        return summed + max(self.step_overhead_seconds / self.speed(worker) for worker in workers)

    def samples_per_second(self, layout: BatchLayout) -> float:
        """Training throughput."""
        return layout.global_batch_size / self.step_seconds(layout)


def _part(shares: str, worker: int) -> float:
    given = shares.split(",") if shares else []
    return float(given[worker]) if worker < len(given) else 1.0


@dataclass(frozen=True)
class Simulation:
    """A problem on a machine. The `model` of a simulated task returns one."""

    problem: NoisyQuadratic = field(default_factory=NoisyQuadratic)
    machine: Machine = field(default_factory=Machine)

    @property
    def settings(self) -> dict[str, int | float | str]:
        """All parameters by name, as `model.NAME` settings of an experiment."""
        return {**asdict(self.problem), **asdict(self.machine)}


def simulation(settings: Mapping[str, Any]) -> Simulation:
    """A Simulation with the given parameters and defaults for the rest. Raises InputError for a bad name or value."""
    defaults = Simulation().settings
    values: dict[str, int | float | str] = {}
    for name, value in settings.items():
        if name not in defaults:
            close = did_you_mean(name, defaults)
            raise InputError(f"There is no setting {quote(f'model.{name}')}.{close} Possible: {', '.join(defaults)}.")
        if isinstance(defaults[name], str):
            values[name] = _shares(name, value)
        else:
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
    "link_bytes_per_second": 1.0,
    "gradient_parts": 1,
}
_MAXIMUM: dict[str, float] = {
    "dimensions": 10_000,
    "samples": 10_000_000,
    "gradient_parts": 10_000,
    "timing_noise": 1.0,
    "timing_seed": 2**32,
}
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


def _shares(name: str, value: object) -> str:
    given = [value] if isinstance(value, int | float) else value.split(",") if isinstance(value, str) and value else []
    try:
        shares = [float(each) for each in given]
    except ValueError:
        shares = [0.0]
    if not all(1e-6 <= share <= 1e6 for share in shares):
        raise InputError(f'model.{name} is {quote(value)}; give a number above 0 for each device, such as "1, 0.5".')
    return ", ".join(f"{share:g}" for share in shares)
