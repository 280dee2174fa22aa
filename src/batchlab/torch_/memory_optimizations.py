"""Memory optimizations: what `DeviceSettings.memory_optimizations` does to a new model, with the same numbers."""

from __future__ import annotations

from collections.abc import Collection

from torch import nn

from batchlab.core.errors import InputError
from batchlab.core.experiment import MemoryOptimization
from batchlab.torch_.checkpointing import checkpoint_blocks, repeated_blocks
from batchlab.torch_.chunked_loss import Deferral, defer_logits


def apply_to_model(
    model: nn.Module, memory_optimizations: Collection[MemoryOptimization], *, compiled: bool
) -> Deferral | None:
    """Checkpoint the model's repeated blocks, defer its last linear layer; InputError where it has no such thing.

    The model's class stays as it is; single modules of this one model get another `forward`. What is returned tells,
    after a forward pass, whether a loss came in pieces.
    """
    wanted = {"checkpointing", "chunked_loss"}.intersection(memory_optimizations)
    if wanted and compiled:
        raise InputError(
            f"device.compile cannot be combined with {' and '.join(sorted(wanted))}: a compiled model decides for "
            "itself what it keeps; leave one of the two out."
        )
    blocks = repeated_blocks(model)
    if "checkpointing" in wanted:
        if not blocks:
            raise InputError(
                f"Activation checkpointing needs blocks that repeat, and {type(model).__name__} has no ModuleList or "
                "Sequential with two or more modules of one class that have layers of their own."
            )
        checkpoint_blocks(blocks)
    if "chunked_loss" not in wanted:
        return None
    deferral = defer_logits(model, outside=blocks)
    if deferral is None:
        raise InputError(
            f"A loss in pieces needs a last linear layer, and {type(model).__name__} has no nn.Linear outside its "
            "repeated blocks."
        )
    return deferral
