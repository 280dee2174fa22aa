"""Ranks as threads: the simulated device shared by several of them, through the same interface as torch's."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.core.batch import BatchLayout, lay_out
from batchlab.core.errors import InputError
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Batch
from batchlab.core.ranks import Ranks
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.simulated.machine import Machine, Simulation, simulation
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


UNEQUAL = Machine(
    knee_samples=1,
    all_reduce_seconds=0.001,
    link_bytes_per_second=1e6,
    gradient_bytes=4000,
    gradient_parts=4,
    worker_speeds="1, 0.5, 0.25",
    worker_memories="1, 1, 0.25",
)


def step_seconds(machine: Machine, shares: tuple[int, ...]) -> float:
    """Seconds of the second of two steps."""

    def steps(ranks: Ranks) -> float:
        settings = OptimizerSettings(config=OptimizerConfig(grad_clip=0.5))
        one = SimulatedTrainable(Simulation(PROBLEM, machine), DeviceSettings(name="simulated"), settings)
        one.init(0)
        one.join(ranks)
        ended = []
        for _ in range(2):
            one.accumulate_last(DATA.gather(np.arange(shares[ranks.rank])), 1 / sum(shares))
            one.apply(1e-3)
            one.time_sum(0)  # after which all clocks are the same
            ended.append(one.synchronize())
        return ended[1] - ended[0]

    return run_in_threads(len(shares), steps)


@pytest.mark.parametrize("shares", [(8, 4, 2), (4, 4, 4), (1, 12, 1)])
def test_unequal_devices_end_a_step_when_the_last_sum_has_ended(shares: tuple[int, ...]) -> None:
    layout = BatchLayout(global_batch_size=sum(shares), micro_batch_size=4, data_parallel_size=3, shares=shares)
    whole = layout.model_copy(update={"micro_batch_size": max(shares)})
    expected = UNEQUAL.step_seconds(whole) + UNEQUAL.sum_seconds(0)
    assert step_seconds(UNEQUAL, shares) == pytest.approx(expected)


def test_a_backward_pass_hides_all_sums_but_the_last() -> None:
    slow = Machine(knee_samples=1, seconds_per_sample=1.0, all_reduce_seconds=0.01, gradient_bytes=0, gradient_parts=5)
    layout = lay_out(8, 4, data_parallel_size=2)
    assert slow.step_seconds(layout) == pytest.approx(
        slow.pass_seconds(4) + slow.step_overhead_seconds + slow.sum_seconds(0)
    )


def test_each_thread_has_the_memory_of_its_device() -> None:
    def limits(ranks: Ranks) -> list[float]:
        one = SimulatedTrainable(Simulation(PROBLEM, UNEQUAL), DeviceSettings(name="simulated"), OptimizerSettings())
        return ranks.sum([float(one._limit == UNEQUAL.memory_of(ranks.rank))])

    assert run_in_threads(3, limits) == [3.0]


def test_noise_is_that_of_the_device_and_of_the_seed() -> None:
    noisy = Machine(timing_noise=0.1, worker_speeds="1, 1")
    other = Machine(timing_noise=0.1, worker_speeds="1, 1", timing_seed=1)
    assert step_seconds(noisy, (4, 4)) == step_seconds(noisy, (4, 4))
    assert step_seconds(noisy, (4, 4)) != step_seconds(other, (4, 4))


@pytest.mark.parametrize("speeds", ["1, fast", "1, 0", "1, -2", "nan"])
def test_speeds_that_are_no_numbers_are_refused(speeds: str) -> None:
    with pytest.raises(InputError, match="a number above 0 for each device"):
        simulation({"worker_speeds": speeds})


def test_one_speed_may_be_a_number() -> None:
    assert simulation({"worker_speeds": 0.5}).machine.speed(0) == 0.5
