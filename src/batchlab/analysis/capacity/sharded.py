"""Memory of one of several devices that train together, from the trace of a single one.

DDP: every device holds what one alone would, and buckets for the gradients, one more copy of them. They are shared with
`gradient_as_bucket_view=True`. Source: torch.nn.parallel.DistributedDataParallel, notes on buckets.

FSDP2 (`fully_shard` on every block and then on the model) keeps 1/N of parameters, gradients and optimizer state on
each of N devices, as ZeRO stage 3 does (Rajbhandari et al. 2020, arXiv:1910.02054, section 5):

- A parameter is cut along its first dimension into N chunks of ⌈d₀/N⌉ rows. Every device stores a whole chunk, padded
  where fewer rows are left; so do its gradients. Optimizer state has the rows that are there, so the first device holds
  most (torch/distributed/fsdp/_fully_shard/_fsdp_param.py).
- Forward: the parameters of one block, and the buffer of an all-gather, which is kept until the next one has arrived.
- Backward: the parameters of one block and the buffer of the one that is gathered ahead; the gradients of the block
  and the input of the reduce-scatter of the block after it. Buffers are padded parameters (_fsdp_param_group.py,
  _fsdp_collectives.py). The largest pair of neighbours counts.
- What is in no block is gathered when the forward pass begins, and kept until the backward pass ends, with its
  gradients.
- Not resharded after forward: all blocks stay gathered until their backward pass; as ZeRO stage 2.

Not included: communication libraries' own buffers, and parameters that are gathered in another type
(MixedPrecisionPolicy), unless `gathered_bytes` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from batchlab.core.record import ParameterShape, PhasePeak, ShardingUnit, TracePoint

Strategy = Literal["ddp", "fsdp", "fsdp_gathered"]
"""fsdp: parameters are resharded after forward. fsdp_gathered: they stay gathered until backward."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """Training on `devices` devices.

    gathered_bytes, reduced_bytes: per element of a gathered parameter and of a reduced gradient; None: as the
    parameter itself. bucket_views: DDP's gradients are views of its buckets.
    """

    strategy: Strategy
    devices: int
    gathered_bytes: int | None = None
    reduced_bytes: int | None = None
    bucket_views: bool = False


@dataclass(frozen=True, slots=True)
class ModelStates:
    """Bytes that one device holds all the time."""

    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Of all three."""
        return self.parameters + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True)
class InFlight:
    """Bytes of gathered parameters and whole gradients at the most during each pass."""

    forward: int
    backward: int


def shard_elements(shape: Sequence[int], devices: int, rank: int = 0) -> int:
    """Elements of a parameter that belong to a device; rank 0 has the most."""
    rows, width = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    chunk = math.ceil(rows / devices)
    return min(chunk, max(rows - rank * chunk, 0)) * width


def model_states(units: Sequence[ShardingUnit], sharding: Sharding, optimizer_bytes: int, rank: int = 0) -> ModelStates:
    """What a device holds at most. optimizer_bytes: of one device alone; in proportion to the trained elements.

    Gradients have the type of their parameter.
    """
    parameters = [parameter for unit in units for parameter in unit.parameters]
    trained = [parameter for parameter in parameters if parameter.trained]
    whole = sum(math.prod(parameter.shape) for parameter in trained)
    if sharding.strategy == "ddp":
        gradients = sum(math.prod(parameter.shape) * parameter.element_bytes for parameter in trained)
        copies = 1 if sharding.bucket_views else 2
        held = sum(math.prod(parameter.shape) * parameter.element_bytes for parameter in parameters)
        return ModelStates(held, copies * gradients, optimizer_bytes)
    own = sum(shard_elements(parameter.shape, sharding.devices, rank) for parameter in trained)
    return ModelStates(
        parameters=_stored(parameters, sharding.devices),
        gradients=_stored(trained, sharding.devices),
        optimizer=round(optimizer_bytes * own / whole) if whole else 0,
    )


def _stored(parameters: Sequence[ParameterShape], devices: int) -> int:
    return sum(shard_elements(parameter.shape, devices) * parameter.element_bytes for parameter in parameters)


def in_flight(units: Sequence[ShardingUnit], sharding: Sharding) -> InFlight:
    """What is gathered or not yet reduced, besides the shards; nothing with DDP."""
    if sharding.strategy == "ddp":
        return InFlight(0, 0)
    blocks = [unit for unit in units if unit.name]
    rest = [unit for unit in units if not unit.name]
    gathered = [_whole(unit, sharding, sharding.gathered_bytes) for unit in blocks]
    computed = [_whole(unit, sharding, sharding.gathered_bytes, trained=True) for unit in blocks]
    reduced = [_whole(unit, sharding, sharding.reduced_bytes, trained=True) for unit in blocks]
    always = sum(_whole(unit, sharding, sharding.gathered_bytes) for unit in rest)
    gradients = sum(_whole(unit, sharding, sharding.gathered_bytes, trained=True) for unit in rest)
    gradients += _largest_pair(computed, reduced)
    if sharding.strategy == "fsdp_gathered":
        buffer = max(gathered, default=0)
        return InFlight(always + sum(gathered) + buffer, always + sum(gathered) + gradients)
    return InFlight(
        always + 2 * max(gathered, default=0),
        always + _largest_pair(gathered, gathered) + gradients,
    )


def _whole(unit: ShardingUnit, sharding: Sharding, element_bytes: int | None, *, trained: bool = False) -> int:
    """Bytes of a unit's padded parameters on all devices together."""
    return sum(
        sharding.devices
        * shard_elements(parameter.shape, sharding.devices)
        * (element_bytes or parameter.element_bytes)
        for parameter in unit.parameters
        if parameter.trained or not trained
    )


def _largest_pair(own: Sequence[int], next_one: Sequence[int]) -> int:
    """The most that a block and the one after it take together; both of the same block where there is one."""
    if len(own) == 1:
        return own[0] + next_one[0]
    return max((one + other for one, other in zip(own, next_one[1:], strict=False)), default=0)


def sharded_phases(point: TracePoint, units: Sequence[ShardingUnit], sharding: Sharding) -> tuple[PhasePeak, ...]:
    """A traced size as one of several devices would need it, phase by phase.

    Activations are those of the trace. What gradients and temporaries were alive at a phase's peak is scaled: gradients
    by their share, temporaries of the optimizer's step by what it updates.
    """
    alone = model_states(units, Sharding("ddp", 1, bucket_views=True), 0)
    optimizer_bytes = max((phase.optimizer_bytes for phase in point.phases), default=0)
    held, flight = model_states(units, sharding, optimizer_bytes), in_flight(units, sharding)
    share = held.optimizer / optimizer_bytes if optimizer_bytes else held.parameters / max(alone.parameters, 1)
    gathered = {"forward": flight.forward, "backward": flight.backward, "evaluation": flight.forward}

    def gradients(alive: int) -> int:
        if sharding.strategy == "ddp":  # buckets are there before gradients are
            return alone.gradients if sharding.bucket_views else alive + alone.gradients
        return round(alive * held.gradients / alone.gradients) if alone.gradients else 0

    def one(phase: PhasePeak) -> PhasePeak:
        temporary = phase.temporary_bytes * (share if phase.phase == "optimizer" else 1.0)
        return phase.model_copy(
            update={
                "parameter_bytes": held.parameters + max(phase.parameter_bytes - alone.parameters, 0),
                "gradient_bytes": gradients(phase.gradient_bytes),
                "optimizer_bytes": round(phase.optimizer_bytes * share),
                "temporary_bytes": gathered.get(phase.phase, 0) + round(temporary),
            }
        )

    return tuple(one(phase) for phase in point.phases)
