"""Applies memory optimizations, which reduce memory without changing results, to a new model."""

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
    """Checkpoint the repeated blocks of the model, and defer its last linear layer, as requested.

    Replaces `forward` on single modules of this instance; classes are not changed. With chunked_loss, the returned
    Deferral records whether the loss was computed in chunks. Raises InputError if the model has no repeated blocks or
    no last linear layer, or if it is compiled.
    """
    wanted = {"checkpointing", "chunked_loss"}.intersection(memory_optimizations)
    if wanted and compiled:
        raise InputError(
            f"device.compile cannot be combined with {' and '.join(sorted(wanted))}: the compiler itself decides "
            "which activations to keep; omit one of the two."
        )
    blocks = repeated_blocks(model)
    if "checkpointing" in wanted:
        if not blocks:
            raise InputError(
                f"Activation checkpointing needs repeated blocks, but {type(model).__name__} has no ModuleList or "
                "Sequential with two or more modules of the same class that have submodules."
            )
        checkpoint_blocks(blocks)
    if "chunked_loss" not in wanted:
        return None
    deferral = defer_logits(model, outside=blocks)
    if deferral is None:
        raise InputError(
            f"chunked_loss needs a last linear layer, but {type(model).__name__} has no nn.Linear outside its repeated "
            "blocks."
        )
    return deferral
