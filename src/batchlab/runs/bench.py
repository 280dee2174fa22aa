"""One small fixed batch of the person's data and the code that runs on it, with the comparisons a check makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.check import CheckFinding, Status
from batchlab.core.nested import batch_size, select
from batchlab.core.protocols import Batch, EvaluatesDraws, Inspectable, OutOfMemory
from batchlab.data.stream import SampleStream

SLOW_SECONDS = 0.8
"""Where a forward and backward pass takes longer, the batch has 4 samples: about 25 passes must end within 30 s."""

LEARNING_RATE = 1e-3
"""Small enough for three steps of any reasonable model, large enough to move a float32 parameter."""

Verdict = tuple[Status, CheckFinding]
"""What one line of the check found, and whether that is ok."""

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(slots=True)
class Bench:
    """The person's code and one small batch with its halves; `loss_tolerance` and `tolerance` are relative."""

    trainable: Inspectable
    batch: Batch
    tolerance: float = 1e-4
    loss_tolerance: float = 1e-5
    mixes: str | None = None  # what makes the samples of a batch influence each other, once that is known

    @property
    def size(self) -> int:
        return batch_size(self.batch)

    @property
    def halves(self) -> tuple[Batch, Batch]:
        return self.part(0, self.size // 2), self.part(self.size // 2, self.size)

    def part(self, start: int, stop: int) -> Batch:
        return select(self.batch, slice(start, stop))

    def pick(self, indices: Iterable[int]) -> Batch:
        return select(self.batch, list(indices))

    def redrawn(self, loss: float) -> float:
        """Σ losses of the batch with other random numbers; the given one where the trainable cannot draw others."""
        trainable = self.trainable
        return float(trainable.evaluate_draw(self.batch, 1)[0]) if isinstance(trainable, EvaluatesDraws) else loss

    def start(self, seed: int = 0, *, quiet: bool = True) -> bytes:
        """Initialise, with dropout off where `quiet`, and return the state."""
        self.trainable.init(seed)
        if quiet:
            self.trainable.without_randomness()
        return self.trainable.state()

    def accumulate(self, *batches: Batch) -> None:
        weight = 1.0 / sum(self.trainable.count(batch) for batch in batches)
        for batch in batches:
            self.trainable.accumulate(batch, weight)

    def step(self, learning_rate: float) -> None:
        self.accumulate(self.batch)
        self.trainable.apply(learning_rate)


def set_up(make: Callable[[], Inspectable], train: SampleStream, samples: int, precision: str) -> Bench:
    """The largest bench of at most `samples` that fits in memory and is quick enough."""
    while True:
        trainable = make()
        batch = train.batch(0, samples)
        bench = Bench(trainable, batch)
        try:
            bench.start()
            bench.tolerance, bench.loss_tolerance = _tolerances(trainable.parameters(), precision)
            bench.accumulate(batch)  # the first pass warms up
            trainable.apply(0.0)
            started = trainable.synchronize()
            bench.accumulate(batch)
            slow = trainable.synchronize() - started > SLOW_SECONDS
        except OutOfMemory:
            if samples < 4:
                raise
            samples = samples // 4 * 2
            continue
        except Exception:  # noqa: BLE001 - the lines of the check meet the same error and report it
            return bench
        return Bench(trainable, train.batch(0, 4), bench.tolerance, bench.loss_tolerance) if slow else bench


def _tolerances(parameters: Arrays, precision: str) -> tuple[float, float]:
    """Relative rounding errors to allow in (gradients, losses): some hundreds of units in the last place."""
    kinds = {str(array.dtype) for array in parameters.values()}
    if precision in ("bf16", "fp16") or kinds & {"float16", "bfloat16"}:
        return 5e-2, 1e-2
    if precision == "tf32":
        return 1e-2, 1e-3
    return (1e-9, 1e-10) if kinds == {"float64"} else (1e-4, 1e-5)


def copy(arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    return {name: np.array(array) for name, array in arrays.items()}


def same_bits(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def _values(arrays: Arrays) -> Iterator[npt.NDArray[np.float64]]:
    for array in arrays.values():
        yield np.asarray(array, dtype=np.float64)


def norm(arrays: Arrays) -> float:
    """L2 norm over all tensors together."""
    return math.sqrt(sum(float(np.sum(np.square(array))) for array in _values(arrays)))


def distance(one: Arrays, other: Arrays) -> float:
    """L2 norm of the difference, relative to `other`; infinite where they do not name the same tensors."""
    if one.keys() != other.keys():
        return math.inf
    return norm({name: one[name] - other[name] for name in other}) / (norm(other) or 1.0)


def close(one: float, other: float, tolerance: float, scale: float) -> bool:
    return abs(one - other) <= tolerance * scale
