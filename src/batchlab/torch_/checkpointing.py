"""Activation checkpointing: recompute the activations of a block in the backward pass instead of storing them.

Source: Chen et al. 2016, "Training deep nets with sublinear memory cost" (arXiv:1604.06174). Uses
torch.utils.checkpoint. Both passes draw the same random numbers, and running statistics are updated only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost modules that occur twice or more, by class, in a ModuleList or Sequential.

    Only modules with submodules count: two consecutive linear layers are not blocks. A module that is used several
    times is listed once.
    """
    repeated = _repeated_children(model)
    below = [block for child in model.children() if child not in repeated for block in repeated_blocks(child)]
    return list(dict.fromkeys((*repeated, *below)))


def _repeated_children(container: nn.Module) -> list[nn.Module]:
    if not isinstance(container, nn.Sequential | nn.ModuleList):
        return []
    composite = [child for child in container.children() if any(True for _ in child.children())]
    classes = Counter(type(child) for child in composite)
    return [child for child in composite if classes[type(child)] > 1]


def checkpoint_blocks(blocks: list[nn.Module]) -> None:
    """Replace the forward of these modules, so that they store only their inputs for the backward pass."""
    for block in blocks:
        block.forward = _Checkpointed(block)


class _Checkpointed:
    """The checkpointed forward of a module."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._forward = block.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        return checkpoint(self._forward, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _buffers_kept(self._block)


@contextmanager
def _buffers_kept(block: nn.Module) -> Iterator[None]:
    """Run the block on copies of its buffers; otherwise BatchNorm would count every batch twice.

    Copying the values back afterwards would be an in-place change of tensors that the first pass saved for backward.
    """
    originals = [
        (module, name, buffer) for module in block.modules() for name, buffer in module.named_buffers(recurse=False)
    ]
    for module, name, buffer in originals:
        module._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for module, name, buffer in originals:
            module._buffers[name] = buffer
