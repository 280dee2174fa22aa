"""Attention as CUDA computes it, in a trace on a CPU: which kernel is chosen, and what that kernel allocates.

On a CPU, attention with a mask keeps the whole matrix of weights; CUDA's memory-efficient kernel does not, so that a
traced encoder with a padding mask was 55 to 73 % too high. The conditions are those of PyTorch's own choice
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), the sizes those of its kernels (attention.cu,
attention_backward.cu and flash_attn/flash_api.cpp, torch 2.14), for cards of compute capability 8.0. From 9.0 on cuDNN
is preferred in bf16 and fp16, whose workspaces are not published; below 8.0 there is no flash attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

_aten: Any = torch.ops.aten

Kernel = Literal["flash", "efficient", "math"]

_HALF = (torch.bfloat16, torch.float16)
_MASK_ALIGNMENT = 16
"""Elements; a mask whose rows are no multiple of it is copied, to its full size."""


def chosen_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    enable_gqa: bool,
) -> Kernel:
    """What scaled_dot_product_attention runs on CUDA for tensors of these shapes and types."""
    if not all(each.ndim == 4 and each.stride(-1) == 1 for each in (query, key, value)):
        return "math"
    if 0 in (query.shape[-2], key.shape[-2]) or not query.dtype == key.dtype == value.dtype:
        return "math"
    heads = {each.shape[1] for each in (query, key, value)}
    grouped = enable_gqa and len(heads) > 1
    if len({each.shape[0] for each in (query, key, value)}) > 1 or (len(heads) > 1 and not grouped):
        return "math"
    width = query.shape[-1]
    same_width = width == key.shape[-1] == value.shape[-1]
    square = query.shape[-2] == key.shape[-2]
    if query.dtype in _HALF and mask is None and same_width and width <= 256 and (square or not is_causal):
        return "flash"
    alignment = 8 if query.dtype in _HALF else 4
    aligned = width == key.shape[-1] and width % alignment == 0 and value.shape[-1] % alignment == 0
    if query.dtype in (*_HALF, torch.float32) and aligned and not grouped:
        return "efficient"
    return "math"


@contextmanager
def cuda_attention() -> Iterator[None]:
    """Inside, attention over fake tensors on a CPU does what it would do on CUDA. It changes the process, so nothing
    else may compute meanwhile."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
        yield
    finally:
        library._destroy()


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    kernel = chosen_kernel(query, key, value, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)
    if kernel == "flash":
        width = query.shape[-1]
        padded = [_padded(each, -width % 8) for each in (query, key, value)]
        result = _aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale)[0]
        return result if width % 8 == 0 else result[..., :width]
    mask = attn_mask
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, torch.zeros((), dtype=query.dtype), float("-inf"))
    if kernel == "efficient":
        if mask is not None:
            mask = _aligned(mask.expand(*query.shape[:3], key.shape[2]))
        trains = any(each.requires_grad for each in (query, key, value))
        return _aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, trains, dropout_p, is_causal, scale=scale
        )[0]
    return _aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _padded(tensor: Tensor, elements: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, elements)) if elements else tensor


def _aligned(mask: Tensor) -> Tensor:
    """The mask, expanded to all batches and heads, as the kernel can read it: often a copy of that size."""
    short = -mask.shape[-1] % _MASK_ALIGNMENT
    if short:
        return torch.nn.functional.pad(mask, (0, short))[..., : mask.shape[-1]]
    return mask.contiguous() if any(stride % _MASK_ALIGNMENT for stride in mask.stride()[:3]) else mask
