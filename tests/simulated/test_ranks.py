"""Ranks as threads: the simulated device shared by several of them, through the same interface as torch's."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Batch
from batchlab.core.ranks import Ranks
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.problem import NoisyQuadratic, training_data
from batchlab.simulated.ranks import run_in_threads
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.testing import check_shared_sums

PROBLEM = NoisyQuadratic(samples=64, dimensions=4)
DATA = training_data(PROBLEM)
MACHINE = Machine(knee_samples=1, all_reduce_seconds=0.5)


def trainable() -> SimulatedTrainable:
    settings = OptimizerSettings(config=OptimizerConfig(grad_clip=0.5))
    return SimulatedTrainable(Simulation(PROBLEM, MACHINE), DeviceSettings(name="simulated"), settings)


def batch_of(step: int) -> Batch:
    return DATA.gather(np.arange(8) + step % 7)


@pytest.mark.parametrize("shares", [[[6], [2]], [[2, 2, 2], [2]], [[2], [2], [2], [2]]])
def test_any_shares_train_as_one_device(shares: list[list[int]]) -> None:
    run_in_threads(len(shares), lambda ranks: check_shared_sums(trainable, batch_of, shares, ranks))


def test_a_step_ends_when_the_slowest_is_ready_and_all_have_spoken() -> None:
    def step(ranks: Ranks) -> float:
        one = trainable()
        one.init(0)
        one.join(ranks)
        one.accumulate_last(DATA.gather(np.arange(5 if ranks.rank else 2)), 1 / 7)
        one.apply(1e-3)
        return one.synchronize()

    assert run_in_threads(2, step) == pytest.approx(
        MACHINE.pass_seconds(5) + MACHINE.all_reduce_seconds + MACHINE.step_overhead_seconds
    )


def test_what_one_rank_raises_ends_all_and_is_raised() -> None:
    def body(ranks: Ranks) -> None:
        if ranks.rank == 2:
            raise ValueError("here")
        ranks.sum([1.0])

    with pytest.raises(ValueError, match="here"):
        run_in_threads(3, body)


def test_the_others_end_with_rank_0() -> None:
    assert run_in_threads(2, lambda ranks: ranks.sum([1.0]) if ranks.rank else None) is None
