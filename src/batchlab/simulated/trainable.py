"""Training on the simulated device: the noisy quadratic problem, a virtual clock and an exact memory limit."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from batchlab.core.format import format_bytes
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.protocols import AddedNorms, Batch, MemoryReading, OutOfMemory, StepStats
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.record import NoGradientSamples
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.simulated.machine import FORWARD, Simulation
from batchlab.simulated.optimizer import Optimizer
from batchlab.simulated.problem import Vector
from batchlab.simulated.ranks import worker_here

_FORMAT = "batchlab simulated 2"


class SimulatedTrainable:
    """A Trainable with known results. Batches are (ε, indices), as in `problem.training_data`.

    The memory limit of the device settings applies immediately, above a baseline of zero bytes.
    """

    sample_independent = True

    def __init__(self, simulation: Simulation, device: DeviceSettings, optimizer: OptimizerSettings) -> None:
        self.problem = simulation.problem
        self.machine = simulation.machine
        self._worker = worker_here()
        self._limit = self.machine.limit(device.memory_limit, self._worker)
        self._optimizer_settings = optimizer
        self._clip = optimizer.config.grad_clip
        self._clock = 0.0
        seed = self.machine.timing_seed
        self._own_noise, self._link_noise = (np.random.default_rng([seed, each]) for each in (1 + self._worker, 0))
        self._ranks = ALONE
        self._gradient: Vector
        self._loss: float
        self._squared_weights: float

    def init(self, seed: int) -> None:
        """Draw initial signs and rounding errors from the seed. Raises OutOfMemory if the fixed bytes do not fit."""
        self._ranks = ALONE
        self._last_pass = 0.0
        self._peak = 0
        self._reserve(0)
        self._random = np.random.Generator(np.random.PCG64(seed))
        signs = self._random.integers(0, 2, self.problem.dimensions) * 2.0 - 1.0
        self.theta: Vector = self.problem.start * signs
        self._optimizer = Optimizer(self._optimizer_settings, self.problem.dimensions)
        self._rounding = self.problem.rounding
        self._others = self.problem.start**2 if self.problem.copies > 1 else None
        self._clear()

    def join(self, ranks: Ranks) -> None:
        """Step on gradients summed over these ranks, when the slowest of them is ready."""
        self._ranks = ranks

    def accumulate_last(self, batch: Batch, weight: float) -> None:
        """`accumulate`: sums over ranks take their time after the last pass."""
        self.accumulate(batch, weight)

    def rank_state(self) -> bytes:
        """Nothing: rounding errors are the same on every rank."""
        return b""

    def load_rank_state(self, state: bytes) -> None:
        """Nothing."""

    def sum_parts(self) -> list[int]:
        """Equal parts of the gradient's bytes."""
        return [self.machine.gradient_bytes // self.machine.gradient_parts] * self.machine.gradient_parts

    def time_sum(self, size: int) -> float:
        """Seconds of a sum, which begins when the last rank is there."""
        begun = max(self._of_all(self._clock))
        self._clock = begun + self._linked(size)
        return self._clock - begun

    def count(self, batch: Batch) -> float:
        """Number of samples."""
        return float(len(batch[0]))

    def accumulate(self, batch: Batch, weight: float) -> None:
        """Add the gradient of weight · Σ losses. Raises OutOfMemory if the batch does not fit."""
        noise, n = batch[0], len(batch[0])
        self._reserve(n)
        self._last_pass = self._took(self.machine.pass_seconds(n, self._worker))
        self._clock += self._last_pass
        with np.errstate(over="ignore", invalid="ignore"):
            pull = self.problem.curvature * self.theta
            total = np.add.reduce(noise, axis=0)
            self._gradient += weight * (n * pull + total)
            self._loss += weight * self._sum_of_losses(n, total)
        self._squared_weights += n * weight**2
        self._accumulated = True

    def accumulate_measured(
        self, batches: Sequence[Batch], weight: float, parameters: Literal["all", "norm_layers"]
    ) -> AddedNorms | NoGradientSamples:
        """`accumulate` each batch in turn; returns the norms of their contributions to the gradient."""
        if parameters == "norm_layers":
            return NoGradientSamples.NO_NORM_LAYERS
        sums = [self._gradient.copy()]
        for batch in batches:
            self.accumulate(batch, weight)
            sums.append(self._gradient.copy())
        with np.errstate(over="ignore", invalid="ignore"):
            squared = [float(np.sum((after - before) ** 2)) for before, after in itertools.pairwise(sums)]
            before, whole = sums[-2], sums[-1]
            share = self.count(batches[-1]) * weight
            last = (whole - before) / share
            signs = (
                float(np.abs(before / (1 - share) - last).sum()),
                float(np.sign(before) @ last),
                float(np.abs(whole).sum()),
            )
            return AddedNorms(squared, float(whole @ whole), None, signs)

    def apply(self, learning_rate: float) -> StepStats:
        """Clip, update the parameters and add the rounding error, clear the gradient."""
        if 0 < self.machine.fails_above < learning_rate:
            raise RuntimeError(f"overflow at a learning rate of {learning_rate:.3g}")
        self._sum_over_ranks()
        with np.errstate(over="ignore", invalid="ignore"):
            norm = math.sqrt(float(self._gradient @ self._gradient))
            clipped = self._clip is not None and norm > self._clip
            gradient = self._gradient * (self._clip / norm) if self._clip is not None and clipped else self._gradient
            self._optimizer.step(self.theta, gradient, learning_rate)
            if learning_rate > 0 and self._rounding > 0:
                self.theta += self._rounding * self._random.standard_normal(self.problem.dimensions)
            if self._others is not None:
                self._others = self.problem.expected_update(self._others, learning_rate, self._squared_weights)
        stats = StepStats(self._loss, norm, 1.0 if clipped else 0.0)
        self._clock += self._took(self.machine.step_overhead_seconds / self.machine.speed(self._worker))
        self._clear()
        return stats

    def evaluate(self, batch: Batch) -> tuple[float, float]:
        """(Σ losses, number of samples). Takes a third of the time of a training pass."""
        n = len(batch[0])
        self._reserve(n)
        self._clock += self._took(self.machine.pass_seconds(n, self._worker) * FORWARD)
        return n * self._mean_loss(batch), float(n)

    def state(self) -> bytes:
        """The state as JSON, in which Python floats round-trip exactly."""
        state = {
            "format": _FORMAT,
            "theta": self.theta.tolist(),
            "optimizer": self._optimizer.state(),
            "random": self._random.bit_generator.state,
            "others": None if self._others is None else self._others.tolist(),
        }
        return json.dumps(state).encode()

    def load(self, state: bytes) -> None:
        """Restore what `state` returned. Raises ValueError for other bytes."""
        content = json.loads(state)
        if content.get("format") != _FORMAT or len(content["theta"]) != self.problem.dimensions:
            raise ValueError("these bytes are not the state of this simulated task")
        self.theta = np.array(content["theta"])
        self._optimizer.load(content["optimizer"])
        self._random.bit_generator.state = content["random"]
        self._others = None if content["others"] is None else np.array(content["others"])
        self._clear()

    def memory(self) -> MemoryReading:
        """Bytes now and at the peak since `init`."""
        held = self.machine.peak_bytes(0)
        return MemoryReading(held, None, self._peak, self._peak, "allocated")

    def synchronize(self) -> float:
        """The virtual clock in seconds. It starts at zero and is not reset by `init`."""
        return self._clock

    def parameter_count(self) -> int:
        """Number of dimensions."""
        return self.problem.dimensions

    def optimizer_family(self) -> Literal["adam", "sgd", "other"]:
        """'adam' or 'sgd'."""
        return "adam" if self._optimizer_settings.config.is_adam else "sgd"

    def optimizer_groups(self) -> list[tuple[OptimizerGroup, tuple[str, ...]]]:
        """One group with everything."""
        optimizer, name = self._optimizer, self._optimizer_settings.config.name
        group = OptimizerGroup(
            optimizer={"adamw": "AdamW", "adam": "Adam"}.get(name, "SGD"),
            learning_rate_ratio=1.0,
            weight_decay=optimizer.weight_decay,
            beta1=self._optimizer_settings.config.beta1 if optimizer.adam else None,
            beta2=optimizer.beta2 if optimizer.adam else None,
            epsilon=optimizer.epsilon if optimizer.adam else None,
            parameter_count=self.problem.dimensions,
        )
        return [(group, ("theta",))]

    def parameters(self) -> Mapping[str, npt.NDArray[Any]]:
        """A copy of θ, named `theta`."""
        return {"theta": self.theta.copy()}

    def gradients(self) -> Mapping[str, npt.NDArray[Any]]:
        """A copy of the accumulated gradient, named `theta`; empty after `apply`."""
        return {"theta": self._gradient.copy()} if self._accumulated else {}

    def raw_loss(self, batch: Batch) -> float:
        """Mean loss of the batch."""
        return self._mean_loss(batch)

    def loss_count(self, batch: Batch) -> float | None:
        """None: the loss is a mean."""
        return None

    def without_randomness(self) -> None:
        """Switch the rounding error off until the next `init`."""
        self._rounding = 0.0

    def mixing_layer(self, batch: Batch, half: int) -> str | None:
        """None: samples never influence each other."""
        return None

    def _sum_over_ranks(self) -> None:
        ranks = self._ranks
        if ranks.size == 1:
            return
        backward = self._last_pass * (1 - FORWARD)
        sums = ranks.sum([*self._gradient, self._loss, self._squared_weights])
        begun, lengths = self._of_all(self._clock - backward), self._of_all(backward)
        n = self.problem.dimensions
        self._gradient = np.array(sums[:n])
        self._loss, self._squared_weights = sums[n], sums[n + 1]
        self._clock = self.machine.last_sum_ends([*zip(begun, lengths, strict=True)], self._linked)

    def _of_all(self, number: float) -> list[float]:
        """The number of each rank."""
        ranks = self._ranks
        return ranks.sum([number if rank == ranks.rank else 0.0 for rank in range(ranks.size)])

    def _took(self, seconds: float) -> float:
        """A duration of this device, with noise."""
        noise = self.machine.timing_noise
        return seconds * math.exp(noise * self._own_noise.standard_normal()) if noise else seconds

    def _linked(self, size: int) -> float:
        """A duration of the link, with noise: the same on every rank."""
        noise, seconds = self.machine.timing_noise, self.machine.sum_seconds(size)
        return seconds * math.exp(noise * self._link_noise.standard_normal()) if noise else seconds

    def _mean_loss(self, batch: Batch) -> float:
        n = len(batch[0])
        with np.errstate(over="ignore", invalid="ignore"):
            return self._sum_of_losses(n, np.add.reduce(batch[0], axis=0)) / n

    def _sum_of_losses(self, samples: int, noise: Vector) -> float:
        """Of samples whose gradient noise has this sum."""
        loss = self.problem.loss(self.theta, self._others)
        return samples * loss + float(noise @ self.theta) / self.problem.copies

    def _reserve(self, samples: int) -> None:
        needed = self.machine.peak_bytes(samples)
        if needed > self._limit:
            raise OutOfMemory(
                f"The simulated device has {format_bytes(self._limit)}; a pass over {samples} samples needs "
                f"{format_bytes(needed)}."
            )
        self._peak = max(self._peak, needed)

    def _clear(self) -> None:
        self._gradient = np.zeros(self.problem.dimensions)
        self._loss = 0.0
        self._squared_weights = 0.0
        self._accumulated = False
