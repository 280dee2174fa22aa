"""Bytes of sharded training against hand-computed ones and the table of the ZeRO paper."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.analysis.capacity.sharded import (
    InFlight,
    ModelStates,
    Sharding,
    in_flight,
    model_states,
    shard_elements,
    sharded_phases,
)
from batchlab.core.record import ParameterShape, PhasePeak, ShardingUnit, TracePoint


def unit(name: str, *shapes: tuple[int, ...], element_bytes: int = 4, trained: bool = True) -> ShardingUnit:
    parameters = [ParameterShape(shape=shape, element_bytes=element_bytes, trained=trained) for shape in shapes]
    return ShardingUnit(name=name, parameters=tuple(parameters))


SHAPES = st.lists(st.integers(1, 50), max_size=3).map(tuple)


@given(shape=SHAPES, devices=st.integers(1, 70))
def test_shards_add_up_to_the_parameter_and_the_first_is_largest(shape: tuple[int, ...], devices: int) -> None:
    shards = [shard_elements(shape, devices, rank) for rank in range(devices)]
    whole = 1
    for length in shape:
        whole *= length
    assert sum(shards) == whole
    assert shards[0] == max(shards)
    assert shards[0] >= whole / devices


@pytest.mark.parametrize(("devices", "published"), [(4, 30), (16, 7.5), (64, 1.88), (256, 0.47), (1024, 0.12)])
def test_fully_sharded_states_are_those_of_the_zero_paper(devices: int, published: float) -> None:
    """7.5 billion parameters with mixed-precision Adam, 2 + 2 + 12 bytes each: table 1 of arXiv:1910.02054, in GB."""
    units = [unit("", (7_500_000, 1000), element_bytes=2)]
    states = model_states(units, Sharding("fsdp", devices), optimizer_bytes=12 * 7_500_000_000)
    assert states.total / 1e9 == pytest.approx(published, abs=0.005)


def test_ddp_holds_everything_and_its_buckets() -> None:
    units = [unit("", (10, 10)), unit("frozen", (5,), trained=False)]
    assert model_states(units, Sharding("ddp", 8), 800) == ModelStates(420, 2 * 400, 800)
    assert model_states(units, Sharding("ddp", 8, bucket_views=True), 800) == ModelStates(420, 400, 800)
    assert in_flight(units, Sharding("ddp", 8)) == InFlight(0, 0)


UNITS = (unit("a", (4, 10)), unit("b", (4, 20)), unit("c", (4, 5)), unit("", (8,), (3, 2)))
"""Blocks of 160, 320 and 80 bytes; the rest is 32 and 24, on two devices padded to 32."""


def test_what_is_in_flight_is_the_rest_and_two_neighbours() -> None:
    rest = 32 + 32
    assert in_flight(UNITS, Sharding("fsdp", 2)) == InFlight(
        forward=rest + 2 * 320, backward=rest + (160 + 320) + rest + (160 + 320)
    )
    assert in_flight(UNITS, Sharding("fsdp_gathered", 2)) == InFlight(
        forward=rest + (160 + 320 + 80) + 320, backward=rest + (160 + 320 + 80) + rest + (160 + 320)
    )


def test_other_types_of_gathered_parameters_and_reduced_gradients() -> None:
    flight = in_flight(UNITS, Sharding("fsdp", 2, gathered_bytes=2, reduced_bytes=4))
    assert flight.backward == 32 + (80 + 160) + 32 + max(80 + 320, 160 + 80)


def phase(name: Any, temporary: int = 0, **others: int) -> PhasePeak:
    held = {"parameter_bytes": 624, "gradient_bytes": 0, "optimizer_bytes": 1248, "activation_bytes": 0}
    return PhasePeak(phase=name, temporary_bytes=temporary, **(held | others))


def test_a_traced_step_on_several_devices() -> None:
    """Activations stay, states shrink, and a buffer of the model is on every device. 616 bytes of parameters."""
    point = TracePoint(
        micro_batch_size=1,
        phases=(
            phase("backward", activation_bytes=5000, gradient_bytes=308, temporary=7),
            phase("optimizer", gradient_bytes=616, temporary=616),
        ),
    )
    backward, optimizer = sharded_phases(point, UNITS, Sharding("fsdp", 2))
    own = (160 + 320 + 80 + 32 + 32) // 2  # the rows of the first device, padded
    assert (backward.activation_bytes, backward.parameter_bytes) == (5000, own + 8)
    assert backward.gradient_bytes == round(own / 2)
    assert backward.temporary_bytes == 7 + in_flight(UNITS, Sharding("fsdp", 2)).backward
    assert optimizer.optimizer_bytes == pytest.approx(1248 * own / 616, abs=1)
    assert optimizer.temporary_bytes == pytest.approx(own, abs=1)
    backward, optimizer = sharded_phases(point, UNITS, Sharding("ddp", 2))
    assert (backward.gradient_bytes, optimizer.gradient_bytes) == (308 + 616, 2 * 616)
    assert (backward.temporary_bytes, optimizer.temporary_bytes) == (7, 616)


@given(devices=st.integers(1, 64))
def test_more_devices_never_need_more_states(devices: int) -> None:
    few, many = (model_states(UNITS, Sharding("fsdp", n), 1248).total for n in (devices, devices + 1))
    assert many <= few
