"""Training on several devices that share the model's states, as a person reads it: predicted, never verified."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import Capacity, ShardedCapacity
from batchlab.analysis.capacity.sharded import Strategy
from batchlab.core.format import format_bytes, format_plural

WAYS: dict[Strategy, str] = {
    "ddp": "DDP",
    "fsdp": "FSDP2",
    "fsdp_gathered": "FSDP2, not resharded after forward",
}


def sharded_terms(found: Capacity) -> list[tuple[str, str]]:
    """(label, text): the answer for each way of training on the devices, and what was assumed."""
    if not found.sharded:
        return []
    devices = found.sharded[0].sharding.devices
    limit = format_bytes(found.limit_bytes or 0)
    head = (
        f"predicted from traces of one device and published formulas, not verified: nothing ran, here or on "
        f"{devices:,} × {limit}; {format_bytes(found.headroom_bytes)} of each is left free"
    )
    terms = [(f"ON {devices:,}", head)]
    terms += [("", _answer(sharded)) for sharded in found.sharded]
    return [*terms, ("assumed", _assumed(found.sharded[-1]))]


def _answer(found: ShardedCapacity) -> str:
    way, size, devices = WAYS[found.sharding.strategy], found.max_micro_batch_size, found.sharding.devices
    states = f"parameters, gradients and optimizer state {format_bytes(found.states.total)}"
    flight = found.in_flight.backward
    gathered = f", gathered in backward {format_bytes(flight)}" if flight else ""
    if not size:
        return f"{way}: nothing; one sample needs {format_bytes(found.peak_bytes)} per device: {states}{gathered}"
    return (
        f"{way}: micro-batch {size:,} per device, {size * devices:,} in all, {format_bytes(found.peak_bytes)} per "
        f"device: {states}{gathered}"
    )


def _assumed(found: ShardedCapacity) -> str:
    blocks = found.blocks
    wrapped = (
        f"fully_shard on each of {format_plural(len(blocks), 'block')} ({blocks[0]} … {blocks[-1]}), then on the model"
        if blocks
        else "fully_shard on the model as a whole, because it has no repeated blocks"
    )
    return (
        f"{wrapped}; gathered and reduced in the parameters' own type; DDP without gradient_as_bucket_view; buffers of "
        "the communication library are not included"
    )
