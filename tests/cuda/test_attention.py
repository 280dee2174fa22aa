"""Which attention kernel CUDA chooses, and what it allocates, beside what a trace on a CPU says."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from tests.cuda.card import Card
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from batchlab.torch_.cuda_attention import chosen_kernel, cuda_attention, kernel_scratch
from batchlab.torch_.storage_log import StorageLog

Mask = Literal["none", "padding", "full", "causal"]
SHAPES = ((32, 4, 65, 32), (16, 6, 64, 32), (8, 8, 256, 64), (2, 4, 512, 128), (4, 4, 100, 80), (2, 2, 300, 200))
"""Batch, heads, rows, width."""

BACKWARD = {"flash": "ScaledDotProductFlashAttention", "efficient": "ScaledDotProductEfficientAttention"}


def attention(device: str, dtype: torch.dtype, shape: tuple[int, ...], mask: Mask) -> tuple[list[Tensor], Tensor]:
    """The inputs, and the result of attention over them."""
    batch, heads, rows, width = shape
    query, key, value = (
        torch.zeros(batch, rows, heads, width, device=device, dtype=dtype).transpose(1, 2).requires_grad_()
        for _ in range(3)
    )
    given = {
        "padding": torch.ones(batch, 1, 1, rows, dtype=torch.bool, device=device),
        "full": torch.ones(rows, rows, dtype=torch.bool, device=device),
    }.get(mask)
    result = scaled_dot_product_attention(query, key, value, attn_mask=given, is_causal=mask == "causal")
    return [query, key, value], result


def peak_on_card(dtype: torch.dtype, shape: tuple[int, ...], mask: Mask) -> tuple[int, str]:
    """Most bytes allocated at a time in a forward and backward pass, and the name of the kernel's backward."""
    attention("cuda", dtype, (1, 1, 8, 8), mask)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    inputs, result = attention("cuda", dtype, shape, mask)
    name = type(result.grad_fn).__name__
    torch.autograd.grad(result, inputs, torch.zeros_like(result))
    return torch.cuda.max_memory_allocated() - before, name


def peak_traced(dtype: torch.dtype, shape: tuple[int, ...], mask: Mask) -> int:
    log = StorageLog(scratch=kernel_scratch)
    with FakeTensorMode(), log, cuda_attention():
        inputs, result = attention("cpu", dtype, shape, mask)
        torch.autograd.grad(result, inputs, torch.zeros_like(result))
    return max(phase.total_bytes for phase in log.peaks())


@pytest.mark.parametrize("mask", ["none", "padding", "full", "causal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_traced_pass_needs_what_cuda_allocates(
    card: Card, shape: tuple[int, ...], dtype: torch.dtype, mask: Mask
) -> None:
    measured, name = peak_on_card(dtype, shape, mask)
    query = torch.empty(shape, dtype=dtype, device="meta")
    given = None if mask in ("none", "causal") else query
    kernel = chosen_kernel(query, query, query, given, is_causal=mask == "causal", enable_gqa=False)
    assert name.startswith(BACKWARD[kernel])
    assert abs(peak_traced(dtype, shape, mask) - measured) < 16 * 512  # blocks are rounded up; random seeds take two


@pytest.mark.parametrize(
    ("query", "key", "is_causal", "expected"),
    [
        ((2, 4, 64, 33), (2, 4, 64, 33), False, "math"),  # width
        ((2, 4, 64, 32), (2, 4, 80, 32), True, "efficient"),  # causal and not square
        ((4, 64, 32), (4, 64, 32), False, "math"),  # three dimensions
    ],
)
def test_the_choice_is_cudas(
    card: Card, query: tuple[int, ...], key: tuple[int, ...], is_causal: bool, expected: str
) -> None:
    q, k, v = (torch.zeros(shape, device="cuda").requires_grad_() for shape in (query, key, key))
    assert chosen_kernel(q, k, v, None, is_causal=is_causal, enable_gqa=False) == expected
    result = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    fused = type(result.grad_fn).__name__.startswith("ScaledDotProduct")
    assert fused == (expected != "math")
