"""Another implementation of a PyTorch operation on CPU tensors, while a trace follows another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def cpu_override(operation: str, implementation: Callable[..., Any]) -> Iterator[None]:
    """Inside, `aten::operation` on CPU tensors, gradients included, is `implementation`. It changes the process, so
    nothing else may compute meanwhile."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        library.impl(operation, implementation, "AutogradCPU")
        yield
    finally:
        library._destroy()
