"""How long the probes of a capacity search will take: from assumed speeds at first, from a probe as soon as one ran.

A sample takes 6 × parameters × tokens operations in a training pass (`search.cost`). Speeds are assumed within a wide
range, because small kernels reach a small share of what a large matrix product does; the range is what is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.core.batch import Unit
from batchlab.core.record import TaskInfo
from batchlab.search.cost import FLOPS_PER_PARAMETER

FEWEST_PROBES, MOST_PROBES = 2, 4
"""Of a traced search: usually two, at most four on simulated memories (tests/search/test_capacity.py)."""

VERIFYING_STEPS, CALIBRATING_STEPS = 3, 2
"""Steps of a probe that may be the answer, and of one that only measures, whose first has one micro-batch."""

EVALUATION = 0.4
"""An evaluation takes about a forward pass, a third of a training step; with some room."""

CALIBRATED_AT = 0.5
"""Share of the predicted size at which the first probe usually runs."""

_PER_CORE = (1e9, 4e10)
"""Operations per second of one core: a decoder of 29,792 parameters reached 2e9 (docs/recipes.md, quickstart), and a
large float32 product with AVX-512 comes near the upper end."""

_ACCELERATORS = {"cuda": (1e12, 2e14), "mps": (3e11, 1e13)}
"""Small models in float32 on an old card, to large ones in bf16 on a new one. Not measured here."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """A range of seconds; both ends equal where it was measured."""

    low: float
    high: float

    def times(self, low: float, high: float) -> Seconds:
        return Seconds(self.low * low, self.high * high)


@dataclass(frozen=True, slots=True)
class ProbeTime:
    """What one sample takes in one training pass. `assumed`: operations per second, of a range that nobody measured."""

    per_pass: Seconds
    assumed: Seconds | None = None

    def verifying(self, size: int, accumulation: int) -> Seconds:
        """The probe that verifies a micro-batch size."""
        passes = size * (VERIFYING_STEPS * accumulation + EVALUATION)
        return self.per_pass.times(passes, passes)

    def search(self, size: int, accumulation: int) -> Seconds:
        """A search that predicts this size: with the fewest probes, the first at half of it, to the most."""
        first = CALIBRATED_AT * size * (1 + (CALIBRATING_STEPS - 1) * accumulation + EVALUATION)
        last = size * (VERIFYING_STEPS * accumulation + EVALUATION)
        return self.per_pass.times(first + last, first + (MOST_PROBES - 1) * last)


def assumed_probe_time(task_info: TaskInfo, cores: int) -> ProbeTime | None:
    """Before anything ran. None for a model whose operations 6 × parameters × tokens does not count, such as a
    convolution over samples, and for a device of unknown kind."""
    kind, parameters = task_info.device.partition(":")[0], task_info.parameter_count
    slow, fast = (cores * each for each in _PER_CORE) if kind == "cpu" else _ACCELERATORS.get(kind, (0.0, 0.0))
    if not fast or not parameters or task_info.unit is not Unit.TOKENS:
        return None
    operations = FLOPS_PER_PARAMETER * parameters * task_info.sequence_length
    return ProbeTime(Seconds(operations / fast, operations / slow), Seconds(slow, fast))


def measured_probe_time(seconds_per_sample: float) -> ProbeTime:
    """By the last step of a probe."""
    return ProbeTime(Seconds(seconds_per_sample, seconds_per_sample))
