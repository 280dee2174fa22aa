"""Dropout as CUDA computes it, in a trace on a CPU: what the backward pass keeps is a byte per element.

A CPU keeps the factors by which it multiplied, which take as many bytes as the activations. The condition is PyTorch's
own (is_fused_kernel_acceptable in aten/src/ATen/native/Dropout.cpp, torch 2.14). In-place dropout is the same on both.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from batchlab.torch_.cpu_override import cpu_override

_aten: Any = torch.ops.aten


def cuda_dropout() -> AbstractContextManager[None]:
    """Inside, dropout over fake tensors on a CPU keeps what it would keep on CUDA. It changes the process, so nothing
    else may compute meanwhile."""
    return cpu_override("dropout", _dropout)


def _dropout(input: Tensor, p: float, train: bool) -> Any:
    if not train or p == 0 or not input.numel():
        return input
    if p == 1:
        return input * torch.zeros((), dtype=input.dtype)
    return _aten.native_dropout(input, p, True)[0]
