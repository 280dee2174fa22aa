"""check_trainable rejects broken implementations; each violates one requirement on purpose."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Batch, StepStats
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoisyQuadratic, training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.testing import check_trainable

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
            pickle.loads(state)  # noqa: S301 - the defect to detect
            raise


class AcceptsAnything(Sound):
    def load(self, state: bytes) -> None:
        try:
            json.loads(state)
        except ValueError:
            return
        super().load(state)


class AveragesMeans(Sound):
    """Weights the mean of each part equally, whatever its size."""

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
        (DoesNotMove, "did not change the loss"),
        (KeepsGradients, "clear the gradient"),
        (TrainsInEvaluation, "evaluate must change nothing"),
        (NoisyEvaluation, "."),
        (CountsOtherwise, "evaluate counted 1.0"),
        (ForgetsMomentum, "continue bit-identically"),
        (ForgetsRandomState, "continue bit-identically"),
        (LoadsPickles, "without pickle"),
        (AcceptsAnything, "load must raise for"),
        (AveragesMeans, "splitting the batch in two changes"),
        (Overwrites, "splitting the batch in two changes"),
        (ClockGoesBack, "went back"),
        (PeakBelowNow, "at the peak"),
        (MiscountsParameters, r"parameter_count\(\) is 5, not 6"),
    ],
)
def test_broken_trainables_are_rejected(broken: Callable[[], SimulatedTrainable], says: str) -> None:
    check_trainable(Sound, BATCH)
    with pytest.raises(AssertionError, match=says):
        check_trainable(broken, BATCH)
