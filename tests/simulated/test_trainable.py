"""Training on the simulated device: contract, memory, clock and layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.protocols import Inspectable, OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.optimizer import Optimizer
from batchlab.simulated.problem import NoisyQuadratic, training_data
from batchlab.simulated.trainable import SimulatedTrainable
from batchlab.testing import check_measured_gradients, check_trainable

PROBLEM = NoisyQuadratic(samples=256, dimensions=8)
DATA = training_data(PROBLEM)


def make(machine: Machine | None = None, limit: int | None = None, **optimizer: object) -> SimulatedTrainable:
    config = OptimizerConfig.model_validate({"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, **optimizer})
    return SimulatedTrainable(
        Simulation(PROBLEM, machine or Machine()),
        DeviceSettings(name="simulated", memory_limit=limit),
        OptimizerSettings(config=config),
    )


def batch(start: int, stop: int) -> tuple[np.ndarray, ...]:
    return DATA.gather(np.arange(start, stop))


@pytest.mark.parametrize(
    "optimizer",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"name": "adamw", "grad_clip": 0.1},
        {"name": "task", "grad_clip": None},
    ],
)
def test_contract(optimizer: dict[str, Any]) -> None:
    assert isinstance(make(), Inspectable)
    check_trainable(lambda: make(**optimizer), batch(0, 9), tolerance=1e-11)


def test_contract_with_copies() -> None:
    problem = replace(PROBLEM, copies=4)

    def several() -> SimulatedTrainable:
        plain = OptimizerSettings(config=OptimizerConfig(name="task", grad_clip=None))
        return SimulatedTrainable(Simulation(problem), DeviceSettings(name="simulated"), plain)

    check_trainable(several, batch(0, 9), tolerance=1e-11)
    check_measured_gradients(several, batch(0, 9), tolerance=1e-11)


def test_an_update_above_the_failing_learning_rate_raises() -> None:
    trainable = make(Machine(fails_above=0.5))
    trainable.init(0)
    trainable.apply(0.5)
    with pytest.raises(RuntimeError, match=r"overflow at a learning rate of 0\.51"):
        trainable.apply(0.51)


def test_contract_of_measured_gradients() -> None:
    check_measured_gradients(make, batch(0, 9), tolerance=1e-11)


@pytest.mark.parametrize("sizes", [[16] * 4, [48, 16], [1] * 64, [21, 21, 22]])
def test_layouts_agree_to_rounding_over_50_steps(sizes: list[int]) -> None:
    whole, split = make(name="adamw"), make(name="adamw")
    whole.init(1)
    split.init(1)
    for step in range(50):
        whole.accumulate(batch(0, 64), 1 / 64)
        start = 0
        for size in sizes:
            split.accumulate(batch(start, start + size), 1 / 64)
            start += size
        one, other = whole.apply(0.01), split.apply(0.01)
        assert float(one.loss) == pytest.approx(float(other.loss), rel=1e-9), step
    assert np.allclose(whole.theta, split.theta, rtol=1e-9)


def test_memory_is_linear_and_limited() -> None:
    machine = Machine(memory_bytes=1000, fixed_bytes=100, bytes_per_sample=50)
    trainable = make(machine)
    trainable.init(0)
    assert trainable.memory() == (100, None, 100, 100, "allocated")
    for size, peak in ((4, 300), (2, 300), (18, 1000)):
        trainable.accumulate(batch(0, size), 1.0)
        assert trainable.memory().peak_bytes == peak
    with pytest.raises(OutOfMemory, match="19 samples"):
        trainable.accumulate(batch(0, 19), 1.0)
    assert machine.max_micro_batch_size() == 18
    trainable.init(0)
    assert trainable.memory().peak_bytes == 100


def test_evaluation_also_needs_memory() -> None:
    trainable = make(Machine(memory_bytes=1000, fixed_bytes=100, bytes_per_sample=50))
    trainable.init(0)
    trainable.evaluate(batch(0, 10))
    assert trainable.memory().peak_bytes == 600
    with pytest.raises(OutOfMemory):
        trainable.evaluate(batch(0, 19))


def test_the_lower_limit_applies() -> None:
    machine = Machine(memory_bytes=1000, fixed_bytes=100, bytes_per_sample=50)
    assert machine.max_micro_batch_size(400) == 6
    assert machine.max_micro_batch_size(5000) == 18
    assert machine.max_micro_batch_size(50) == 0
    trainable = make(machine, limit=400)
    trainable.init(0)
    trainable.accumulate(batch(0, 6), 1.0)
    with pytest.raises(OutOfMemory):
        trainable.accumulate(batch(0, 7), 1.0)
    with pytest.raises(OutOfMemory):
        make(machine, limit=99).init(0)


@pytest.mark.parametrize("layout", [(4, 4), (16, 16), (40, 16), (64, 5)])
def test_the_clock_follows_the_machine(layout: tuple[int, int]) -> None:
    machine = Machine(pass_overhead_seconds=0.5, seconds_per_sample=0.25, step_overhead_seconds=2.0, knee_samples=8)
    shape = BatchLayout(global_batch_size=layout[0], micro_batch_size=layout[1])
    trainable = make(machine)
    trainable.init(0)
    before = trainable.synchronize()
    start = 0
    for size in shape.micro_batch_sizes():
        trainable.accumulate(batch(start, start + size), 1.0)
        start += size
    trainable.apply(0.1)
    assert trainable.synchronize() - before == pytest.approx(machine.step_seconds(shape))
    assert machine.samples_per_second(shape) == pytest.approx(layout[0] / machine.step_seconds(shape))


def test_the_knee_is_at_its_setting() -> None:
    machine = Machine(pass_overhead_seconds=0.0, step_overhead_seconds=0.0, knee_samples=8)
    speed = [machine.samples_per_second(BatchLayout(global_batch_size=n, micro_batch_size=n)) for n in (4, 8, 16)]
    assert speed[1] == pytest.approx(2 * speed[0])
    assert speed[2] == pytest.approx(speed[1])


def test_seeds_differ_in_start_but_not_in_loss() -> None:
    trainable = make()
    trainable.init(0)
    first, loss = trainable.parameters()["theta"], trainable.raw_loss(batch(0, 256))
    trainable.init(1)
    assert not np.array_equal(first, trainable.parameters()["theta"])
    assert trainable.raw_loss(batch(0, 256)) == pytest.approx(loss)


def test_clipping_scales_the_gradient_to_the_limit() -> None:
    trainable = make(grad_clip=0.01)
    trainable.init(0)
    trainable.without_randomness()
    before = trainable.parameters()["theta"]
    trainable.accumulate(batch(0, 16), 1 / 16)
    stats = trainable.apply(0.5)
    assert stats.clipped == 1.0
    assert float(stats.grad_norm) > 0.01
    assert np.linalg.norm(trainable.parameters()["theta"] - before) == pytest.approx(0.005)


@pytest.mark.parametrize("settings", [{"name": "adamw"}, {"name": "sgd", "momentum": 0.8}])
def test_optimizers_match_torch(settings: dict[str, object]) -> None:
    torch = pytest.importorskip("torch")
    config = OptimizerConfig.model_validate({"beta2": 0.97, "weight_decay": 0.3, **settings})
    mine, theta = Optimizer(OptimizerSettings(config=config), 5), np.linspace(-1, 1, 5)
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    if config.name == "adamw":
        theirs = torch.optim.AdamW(
            [parameter], betas=(config.beta1, config.beta2), eps=config.epsilon, weight_decay=config.weight_decay
        )
    else:
        theirs = torch.optim.SGD([parameter], lr=1.0, momentum=config.momentum, weight_decay=config.weight_decay)
    for step in range(6):
        gradient, rate = np.cos(np.arange(5.0) * step) * theta, 0.1 / (step + 1)
        theirs.param_groups[0]["lr"] = rate
        parameter.grad = torch.from_numpy(gradient.copy())
        theirs.step()
        mine.step(theta, gradient, rate)
        assert np.allclose(theta, parameter.detach().numpy(), rtol=1e-12)


def test_time_constants_follow_the_batch_size() -> None:
    def optimizer(rule: AcrossBatch) -> Optimizer:
        config = OptimizerConfig(beta2=0.99, weight_decay=0.1, across_batch=rule)
        return Optimizer(OptimizerSettings(config=config, batch_ratio=2.0), 3)

    rules = (AcrossBatch.FIXED, AcrossBatch.HALF_LIFE, AcrossBatch.HALF_LIFE_AND_DECAY)
    assert [optimizer(rule).beta2 for rule in rules] == pytest.approx([0.99, 0.99**2, 0.99**2])
    assert [optimizer(rule).epsilon for rule in rules] == pytest.approx([1e-8, 1e-8 / 2**0.5, 1e-8 / 2**0.5])
    assert [optimizer(rule).weight_decay for rule in rules] == pytest.approx([0.1, 0.1, 0.2])
