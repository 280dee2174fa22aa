"""Attention as CUDA computes it, in a trace on a CPU: which kernel is chosen, and what that kernel allocates.

On a CPU, attention with a mask keeps the whole matrix of weights; CUDA's memory-efficient kernel does not, so that a
traced encoder with a padding mask was 55 to 73 % too high. The conditions are those of PyTorch's own choice
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp), the sizes those of its kernels (attention.cu,
attention_backward.cu and flash_attn/flash_api.cpp, torch 2.14), for cards of compute capability 8.0. From 9.0 on cuDNN
is preferred in bf16 and fp16, whose workspaces are not published; below 8.0 there is no flash attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor

from batchlab.torch_.cpu_override import cpu_override

_aten: Any = torch.ops.aten

Kernel = Literal["flash", "efficient", "math"]

_HALF = (torch.bfloat16, torch.float16)
_MASK_ALIGNMENT = 8
"""Elements; a mask whose rows are no multiple of it is copied."""


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


def cuda_attention() -> AbstractContextManager[None]:
    """Inside, attention over fake tensors on a CPU does what it would do on CUDA. It changes the process, so nothing
    else may compute meanwhile."""
    return cpu_override("scaled_dot_product_attention", _attention)


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
            mask = _aligned(mask).expand(*query.shape[:3], key.shape[2])
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
    """The mask as the kernel can read it."""
    short = -mask.shape[-1] % _MASK_ALIGNMENT
    return _padded(mask, short)[..., : mask.shape[-1]] if short else mask


MULTIPROCESSORS = 132
"""Of an H100. Where a few heads and samples do not keep as many busy, flash attention splits its keys, which costs
memory for a moment; an A100 has 108, other cards fewer."""

FLOAT = 4
"""Bytes of a float32, in which kernels add up."""

Groups = tuple[tuple[int, ...], ...]
"""Bytes that a kernel allocates besides its results: a group is allocated together, and freed before the next one."""


def kernel_scratch(operation: Any, arguments: Sequence[Any]) -> Groups:
    """What the attention kernels allocate and free again while they run, by the sizes of their inputs."""
    match operation:
        case _aten._scaled_dot_product_flash_attention.default:
            return _flash_forward(*arguments[:2])
        case _aten._scaled_dot_product_flash_attention_backward.default:
            return _flash_backward(*arguments[1:3])
        case _aten._scaled_dot_product_efficient_attention.default:
            return _efficient_forward(arguments[0], arguments[2])
        case _aten._scaled_dot_product_efficient_attention_backward.default:
            return _efficient_backward(*arguments[1:4])
        case _:
            return ()


def _flash_forward(query: Tensor, key: Tensor) -> Groups:
    batch, heads, rows, width = query.shape
    splits = _splits(batch * heads * math.ceil(rows / 64), math.ceil(key.shape[2] / _key_block(width)))
    if splits == 1:
        return ()
    each = splits * batch * heads * rows * FLOAT
    return ((each, each * _up(width, 32 if width <= 128 else 64)),)


def _key_block(width: int) -> int:
    return 256 if width <= 64 else 128 if width <= 128 else 64


def _splits(blocks: int, key_blocks: int) -> int:
    """The fewest splits of the keys that keep the multiprocessors at least 85 % as busy as the best number does."""
    slots = 2 * MULTIPROCESSORS
    if blocks >= 0.8 * slots:
        return 1
    efficiency: dict[int, float] = {}
    for splits in range(1, min(128, slots, key_blocks) + 1):
        if splits == 1 or math.ceil(key_blocks / splits) != math.ceil(key_blocks / (splits - 1)):
            waves = blocks * splits / slots
            efficiency[splits] = waves / math.ceil(waves)
    enough = 0.85 * max(efficiency.values())
    return next(splits for splits, busy in efficiency.items() if busy >= enough)


def _flash_backward(query: Tensor, key: Tensor) -> Groups:
    batch, heads, rows, width = query.shape
    rounded = _up(rows, 128)
    sums = batch * heads * rounded * FLOAT
    group = [sums, sums * _up(width, 32 if width <= 128 else 64)]
    if key.shape[1] != heads:  # grouped queries: gradients of every head, before they are added up
        group += 2 * [batch * heads * key.shape[2] * width * query.itemsize]
    return (tuple(group),)


def _efficient_forward(query: Tensor, value: Tensor) -> Groups:
    """In half precision a wide value does not fit into registers, and is added up in memory."""
    batch, heads, rows, _ = query.shape
    wide = query.dtype in _HALF and value.shape[-1] > 128
    return ((batch * heads * rows * value.shape[-1] * FLOAT,),) if wide else ()


def _efficient_backward(query: Tensor, key: Tensor, value: Tensor) -> Groups:
    """The row sums of gradient times output, and the workspace of the kernel for this width (cutlassB, sm80)."""
    batch, heads, rows, width = query.shape
    half, widest = query.dtype in _HALF, max(width, value.shape[-1])
    block = 64 if widest <= 64 else 128
    columns = 128 if half and 64 < widest <= 128 else 64
    tiles = math.ceil(rows / block) * math.ceil(width / columns)
    elements = tiles * (4 + block * columns)
    if half and widest > 128:  # gradients of keys and values do not fit into registers either
        splits = max(1, min(math.ceil(key.shape[2] / 64), 200 // (batch * heads)))
        elements += splits * 64 * (_up(width, block) + _up(value.shape[-1], block))
    workspace, delta = batch * heads * elements * FLOAT, batch * heads * rows * FLOAT
    if half:
        return ((delta, workspace),)
    return ((batch * heads * rows * value.shape[-1] * FLOAT, delta, delta), (delta, workspace))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
