"""The parts of a model that sharded training gathers one at a time: each of its repeated blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

from batchlab.core.record import ParameterShape, ShardingUnit


def sharding_units(model: nn.Module) -> tuple[ShardingUnit, ...]:
    """The repeated blocks in the order of the model, then the rest of the model, where it has parameters of its own.

    A block is one of several children of the same class in an `nn.ModuleList` or `nn.Sequential`: what scripts hand to
    `fully_shard` one by one, before the model itself. A parameter that several modules share belongs to the rest, as
    does one that is used outside its block.
    """
    blocks = dict(_blocks(model, ""))
    owners = Counter(id(parameter) for block in blocks.values() for parameter in block.parameters())
    inside = {identity for identity, count in owners.items() if count == 1}
    inside -= {id(parameter) for parameter in _outside(model, set(map(id, blocks.values())))}
    units = [(name, [p for p in block.parameters() if id(p) in inside]) for name, block in blocks.items()]
    units.append(("", [p for p in model.parameters() if id(p) not in inside]))
    return tuple(
        ShardingUnit(
            name=name,
            parameters=tuple(
                ParameterShape(shape=tuple(p.shape), element_bytes=p.element_size(), trained=p.requires_grad)
                for p in parameters
            ),
        )
        for name, parameters in units
        if parameters
    )


def _blocks(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """The outermost repeated blocks with their names."""
    children = list(module.named_children())
    classes = Counter(type(child) for _, child in children if any(True for _ in child.parameters()))
    holds_blocks = isinstance(module, nn.ModuleList | nn.Sequential)
    for name, child in children:
        if holds_blocks and classes[type(child)] > 1:
            yield prefix + name, child
        else:
            yield from _blocks(child, f"{prefix}{name}.")


def _outside(module: nn.Module, blocks: set[int]) -> Iterator[nn.Parameter]:
    """Parameters of the modules that are in no block."""
    if id(module) in blocks:
        return
    yield from module.parameters(recurse=False)
    for child in module.children():
        yield from _outside(child, blocks)
