"""One optimizer step: which samples it takes, and that neither micro-batches nor their sizes change the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Batch
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.data.stream import SampleStream
from batchlab.runs.step import one_step
from batchlab.simulated.machine import Simulation
from batchlab.simulated.problem import NoisyQuadratic, training_data
from batchlab.simulated.trainable import SimulatedTrainable

PROBLEM = NoisyQuadratic(samples=64, dimensions=4)
DATA = training_data(PROBLEM)
PLAIN = OptimizerSettings(config=OptimizerConfig(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=None))


class Watched:
    """A Trainable whose samples have unequal numbers of targets; it notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.weighted = 0.0
        self.applied: list[float] = []

    def count(self, batch: Batch) -> float:
        return float(np.sum(batch[-1] + 1))

    def accumulate(self, batch: Batch, weight: float) -> None:
        self.seen += list(batch[-1])
        self.weighted += weight * self.count(batch)

    def apply(self, learning_rate: float) -> Any:
        self.applied.append(learning_rate)


@given(batch=st.integers(1, 40), micro=st.integers(1, 40), step=st.integers(0, 5))
def test_a_step_takes_its_samples_in_order_and_weights_every_target_alike(batch: int, micro: int, step: int) -> None:
    trainable: Any = Watched()
    layout = BatchLayout(global_batch_size=batch, micro_batch_size=min(micro, batch))
    stream = SampleStream(DATA, seed=3)
    one_step(trainable, stream, layout, step, 0.25)
    assert trainable.seen == list(SampleStream(DATA, seed=3).indices(step * batch, (step + 1) * batch))
    assert trainable.weighted == pytest.approx(1.0)
    assert trainable.applied == [0.25]


@pytest.mark.parametrize("micro", [16, 8, 5, 1])
def test_micro_batches_do_not_change_the_parameters(micro: int) -> None:
    def trained(size: int) -> float:
        trainable = SimulatedTrainable(Simulation(problem=PROBLEM), DeviceSettings(name="simulated"), PLAIN)
        trainable.init(0)
        layout = BatchLayout(global_batch_size=16, micro_batch_size=size)
        for step in range(5):
            one_step(trainable, SampleStream(DATA, seed=1), layout, step, 0.5)
        return float(trainable.evaluate(DATA.gather(np.arange(8)))[0])

    assert trained(micro) == pytest.approx(trained(16), rel=1e-12)
