"""A probe takes the memory that a training run will take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import MemoryBound, MemoryReading, OutOfMemory
from batchlab.core.record import CapacityResult, Outcome
from batchlab.core.spec import CapacitySpec, DeviceSettings, GradientSampling, OptimizerSettings, Workload
from batchlab.data.largest import WorstStream
from batchlab.runs.capacity import probe
from batchlab.simulated.machine import Simulation
from batchlab.simulated.problem import NoisyQuadratic, held_out_data, training_data
from batchlab.simulated.trainable import SimulatedTrainable

PROBLEM = NoisyQuadratic(samples=64, dimensions=8)
SPEC = CapacitySpec(workload=Workload(task=TaskReference(kind="recipe", target="simulated")), micro_batch_size=4)
SAMPLED = GradientSampling(every=2)


class Tight(SimulatedTrainable):
    """A device whose memory holds plain steps, and not what is named. Notes the steps that measured something."""

    def __init__(self, without: str = "") -> None:
        super().__init__(Simulation(PROBLEM), DeviceSettings(name="simulated"), OptimizerSettings())
        self.without = without
        self.steps = 0
        self.took: list[tuple[str, int]] = []

    def take(self, what: str) -> None:
        self.took.append((what, self.steps))
        if what == self.without:
            raise OutOfMemory(what)

    def apply(self, learning_rate: float) -> Any:
        self.steps += 1
        return super().apply(learning_rate)

    def accumulate_measured(self, *given: Any) -> Any:
        self.take("gradients")
        return super().accumulate_measured(*given)

    def watch(self, detail: Any) -> None:
        self.take("watch")

    def readings(self, batch: Any) -> Any:
        self.take("readings")
        return {}


class Context:
    cache_dir, repaired_lines = Path(), 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def run(trainable: Tight, **asked: Any) -> Outcome:
    stream, held_out = WorstStream(training_data(PROBLEM), seed=0), held_out_data(PROBLEM)
    spec = SPEC.model_copy(update=asked)
    return probe(trainable, stream, held_out, spec, Context(), MemoryBound(None, None)).outcome


def test_the_step_before_the_last_is_sampled_and_watched() -> None:
    trainable = Tight()
    assert run(trainable, gradients=SAMPLED, snapshot="full") is Outcome.COMPLETED
    assert trainable.took == [("watch", 1), ("gradients", 1), ("readings", 2)]


def test_a_probe_that_stands_for_no_training_run_measures_nothing_else() -> None:
    trainable = Tight()
    assert run(trainable) is Outcome.COMPLETED
    assert trainable.took == []


@pytest.mark.parametrize(("whole", "passes"), [(True, [2, 2]), (False, [1, 2])])
def test_a_calibration_creates_the_optimizer_s_state_from_one_micro_batch(whole: bool, passes: list[int]) -> None:
    class Counting(Tight):
        passed: list[int]

        def accumulate(self, *given: Any) -> Any:
            self.passed[self.steps] += 1
            return super().accumulate(*given)

    trainable = Counting()
    trainable.passed = [0, 0]
    assert run(trainable, steps=2, whole=whole) is Outcome.COMPLETED
    assert trainable.passed == passes


class Rising(SimulatedTrainable):
    """A device whose peak rises by 5 bytes in every step."""

    def __init__(self) -> None:
        super().__init__(Simulation(PROBLEM), DeviceSettings(name="simulated"), OptimizerSettings())
        self.steps = 0

    def apply(self, learning_rate: float) -> Any:
        self.steps += 1
        return super().apply(learning_rate)

    def memory(self) -> MemoryReading:
        return MemoryReading(None, None, None, 100 + 5 * self.steps, "process")


@pytest.mark.parametrize(("draws", "grown"), [(False, None), (True, 35)])
def test_over_drawn_batches_the_rise_of_the_peak_is_measured_from_the_second_step(
    draws: bool, grown: int | None
) -> None:
    stream = WorstStream(training_data(PROBLEM), seed=0)
    spec = SPEC.model_copy(update={"steps": 9, "draws": draws})
    result = probe(Rising(), stream, held_out_data(PROBLEM), spec, Context(), MemoryBound(None, None)).result
    assert isinstance(result, CapacityResult)
    assert (result.peak_bytes, result.grown_bytes) == (145, grown)


@pytest.mark.parametrize("what", ["gradients", "watch", "readings"])
def test_what_a_sampled_step_has_no_memory_for_does_not_fit(what: str) -> None:
    with pytest.raises(OutOfMemory):
        run(Tight(without=what), gradients=SAMPLED, snapshot="light")
