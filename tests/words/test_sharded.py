"""What is said of training on several devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from batchlab.analysis.capacity.capacity import Capacity, ShardedCapacity
from batchlab.analysis.capacity.sharded import InFlight, ModelStates, Sharding
from batchlab.words.capacity import capacity_lines

GIB = 2**30

DDP = ShardedCapacity(
    sharding=Sharding("ddp", 8),
    max_micro_batch_size=None,
    peak_bytes=130 * GIB,
    states=ModelStates(30 * GIB, 60 * GIB, 30 * GIB),
    in_flight=InFlight(0, 0),
    blocks=("layers.0", "layers.31"),
)
FSDP = replace(
    DDP,
    sharding=Sharding("fsdp", 8),
    max_micro_batch_size=3,
    peak_bytes=70 * GIB,
    states=ModelStates(4 * GIB, 4 * GIB, 7 * GIB),
    in_flight=InFlight(5 * GIB, 9 * GIB),
)


def said(*sharded: ShardedCapacity, **more: Any) -> str:
    found = Capacity(
        points=(),
        max_micro_batch_size=None,
        status="none",
        searched_up_to=100,
        smallest_failed=None,
        limit_bytes=80 * GIB,
        headroom_bytes=4 * GIB,
        sharded=sharded,
        **more,
    )
    return "\n".join(capacity_lines(found))


def test_every_way_of_training_has_a_line_that_says_predicted() -> None:
    text = said(DDP, FSDP)
    assert "ON 8         predicted from traces of one device and published formulas, not verified" in text
    assert "8 × 80.00 GiB; 4.00 GiB of each is left free" in text
    assert "DDP: nothing; one sample needs 130.00 GiB per device" in text
    assert "FSDP2: micro-batch 3 per device, 24 in all, 70.00 GiB per device" in text
    assert "optimizer state 15.00 GiB, gathered in backward 9.00 GiB" in text


def test_the_wrapping_is_named() -> None:
    assert "fully_shard on each of 2 blocks (layers.0 … layers.31), then on the model" in said(FSDP)
    assert "no repeated blocks" in said(replace(FSDP, blocks=()))


def test_without_several_devices_nothing_is_said_of_them() -> None:
    assert "FSDP" not in said()
