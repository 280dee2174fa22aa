"""The contract tests notice broken implementations: each promise is broken on purpose once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import Batch, Finished, StepStats
from batchlab.core.spec import CapacitySpec, DeviceSettings, OptimizerSettings, Workload
from batchlab.engines.inline import InlineEngine
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoiseDataset, NoisyQuadratic, training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.testing import check_dataset, check_engine, check_search, check_trainable

PROBLEM = NoisyQuadratic(samples=64, dimensions=6)
BATCH = training_data(PROBLEM).gather(np.arange(8))


class Sound(SimulatedTrainable):
    def __init__(self) -> None:
        config = OptimizerConfig(name="sgd", momentum=0.5, grad_clip=None)
        super().__init__(
            Simulation(PROBLEM, Machine()), DeviceSettings(name="simulated"), OptimizerSettings(config=config)
        )


class StartsAnywhere(Sound):
    def init(self, seed: int) -> None:
        super().init(int(np.random.default_rng().integers(1 << 40)))


class KeepsMomentumAcrossInit(Sound):
    def init(self, seed: int) -> None:
        kept = getattr(self, "_optimizer", None)
        super().init(seed)
        self._optimizer = kept or self._optimizer


class IgnoresLearningRate(Sound):
    def apply(self, learning_rate: float) -> StepStats:
        return super().apply(0.01)


class DoesNotMove(Sound):
    def apply(self, learning_rate: float) -> StepStats:
        return super().apply(0.0)


class KeepsGradients(Sound):
    def apply(self, learning_rate: float) -> StepStats:
        kept = self._gradient
        stats = super().apply(learning_rate)
        self._gradient = kept
        return stats


class TrainsInEvaluation(Sound):
    def evaluate(self, batch: Batch) -> tuple[float, float]:
        result = super().evaluate(batch)
        self._random.standard_normal()
        return result


class NoisyEvaluation(Sound):
    def evaluate(self, batch: Batch) -> tuple[float, float]:
        total, count = super().evaluate(batch)
        return total + float(np.random.default_rng().normal()), count


class CountsOtherwise(Sound):
    def evaluate(self, batch: Batch) -> tuple[float, float]:
        return super().evaluate(batch)[0], 1.0


class ForgetsMomentum(Sound):
    def load(self, state: bytes) -> None:
        super().load(state)
        self._optimizer.first = np.zeros(6)


class ForgetsRandomState(Sound):
    def load(self, state: bytes) -> None:
        super().load(state)
        self._random = np.random.Generator(np.random.PCG64(99))


class LoadsPickles(Sound):
    def load(self, state: bytes) -> None:
        try:
            super().load(state)
        except ValueError:
            pickle.loads(state)  # noqa: S301 - the fault that must be noticed
            raise


class AcceptsAnything(Sound):
    def load(self, state: bytes) -> None:
        try:
            json.loads(state)
        except ValueError:
            return
        super().load(state)


class AveragesMeans(Sound):
    """Each part's mean counts alike, however large the part."""

    def accumulate(self, batch: Batch, weight: float) -> None:
        super().accumulate(batch, weight * 4 / len(batch[0]))


class Overwrites(Sound):
    def accumulate(self, batch: Batch, weight: float) -> None:
        self._clear()
        super().accumulate(batch, weight)


class ClockGoesBack(Sound):
    def synchronize(self) -> float:
        return -super().synchronize()


class PeakBelowNow(Sound):
    def memory(self) -> Any:
        return super().memory()._replace(peak_in_use_bytes=1)


class MiscountsParameters(Sound):
    def parameter_count(self) -> int:
        return 5


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (StartsAnywhere, "same seed"),
        (KeepsMomentumAcrossInit, "also reset optimizer"),
        (IgnoresLearningRate, r"apply\(0.0\) must change no parameter"),
        (DoesNotMove, "left the loss exactly where it was"),
        (KeepsGradients, "clear the gradient"),
        (TrainsInEvaluation, "evaluate must change nothing"),
        (NoisyEvaluation, "."),
        (CountsOtherwise, "evaluate counted 1.0"),
        (ForgetsMomentum, "continue to the bit"),
        (ForgetsRandomState, "continue to the bit"),
        (LoadsPickles, "without pickle"),
        (AcceptsAnything, "load must raise for"),
        (AveragesMeans, "in two parts leaves the path"),
        (Overwrites, "in two parts leaves the path"),
        (ClockGoesBack, "went back"),
        (PeakBelowNow, "at the peak"),
        (MiscountsParameters, r"parameter_count\(\) is 5, not 6"),
    ],
)
def test_broken_trainables_are_noticed(broken: Callable[[], SimulatedTrainable], says: str) -> None:
    check_trainable(Sound, BATCH)
    with pytest.raises(AssertionError, match=says):
        check_trainable(broken, BATCH)


class GivesItsMemoryAway(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        kept: dict[tuple[int, ...], Batch] = self.__dict__.setdefault("kept", {})
        return kept.setdefault(tuple(indices.tolist()), super().gather(indices))


class Sorts(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        return super().gather(np.sort(indices))


class WrapsAround(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        return super().gather(indices % len(self))


class ForgetsItself(NoiseDataset):
    @property
    def digest(self) -> str:  # type: ignore[override]
        return str(np.random.default_rng().integers(1 << 60))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (GivesItsMemoryAway, "must not change the dataset"),
        (Sorts, "in the order of the indices"),
        (WrapsAround, "must raise IndexError"),
        (ForgetsItself, "digest stays the same"),
    ],
)
def test_broken_datasets_are_noticed(broken: type[NoiseDataset], says: str) -> None:
    table = np.arange(12.0).reshape(6, 2)
    check_dataset(NoiseDataset(table.copy()))
    with pytest.raises(AssertionError, match=says):
        check_dataset(broken(table.copy()))


class Countdown:
    def __init__(self, left: int = 3) -> None:
        self.left = left

    def ask(self) -> Sequence[int]:
        return [self.left] if self.left else []

    def tell(self, proposals: Sequence[int], outcomes: Sequence[int]) -> None:
        self.left -= 1


class Endless(Countdown):
    def tell(self, proposals: Sequence[int], outcomes: Sequence[int]) -> None: ...


class Whimsical(Countdown):
    def ask(self) -> Sequence[int]:
        return [int(np.random.default_rng().integers(1 << 60))]


def test_broken_searches_are_noticed() -> None:
    assert check_search(Countdown, lambda n: n) == [3, 2, 1]
    with pytest.raises(AssertionError, match="still asks after 20 rounds"):
        check_search(Endless, lambda n: n, max_rounds=20)
    with pytest.raises(AssertionError, match="gives the same round"):
        check_search(Whimsical, lambda n: n)


def probes() -> list[CapacitySpec]:
    workload = Workload(
        task=TaskReference(kind="recipe", target="simulated"),
        unit=Unit.SAMPLES,
        model={"samples": 64, "dimensions": 4, "memory_bytes": 10 * 2**20, "fixed_bytes": 2**20},
    )
    device = DeviceSettings(name="simulated")
    return [CapacitySpec(workload=workload, micro_batch_size=size, device=device) for size in (2, 9, 10)]


class Repeats(InlineEngine):
    def wait(self, timeout: float) -> list[Any]:
        return [event for event in super().wait(timeout) for _ in range(2)]


class SwapsRecords(InlineEngine):
    def wait(self, timeout: float) -> list[Any]:
        events = super().wait(timeout)
        return [Finished(probes()[0], event.record) if isinstance(event, Finished) else event for event in events]


def test_engines(tmp_path: Path) -> None:
    records = check_engine(lambda: InlineEngine(tmp_path / "sound"), probes())
    assert [record.outcome.value for record in records] == ["completed", "completed", "out_of_memory"]
    with pytest.raises(AssertionError, match="ended more than once"):
        check_engine(lambda: Repeats(tmp_path / "repeats"), probes())
    with pytest.raises(AssertionError, match="is named"):
        check_engine(lambda: SwapsRecords(tmp_path / "swaps"), probes())
