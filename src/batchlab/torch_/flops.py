"""Floating-point operations of a model, and how many per second the device does at most.

Both are counted as MFU needs them (Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B): matrix products,
convolutions and attention of one forward pass; a training step has three times as many, whatever is recomputed. Where
parameters are frozen, or a custom kernel does the work, the true number differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from batchlab.core.experiment import Precision

TRAINING_PASSES = 3
"""A backward pass has twice the operations of a forward pass."""

SMALLEST, LARGEST = 256, 8192
"""Rows of the square matrices: beyond the largest, an H100 gains no speed any more; the smallest fit anywhere."""

LONG_ENOUGH = 0.02
"""Seconds of one product, by which starting it does not count."""

REPEATS = 8

_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def training_flops(forward: Callable[[], object]) -> float:
    """Operations of a training step over what `forward` runs, which must not record gradients."""
    from torch.utils.flop_counter import FlopCounterMode  # which looks for Triton, and warns where there is none

    with FlopCounterMode(display=False) as counter:
        forward()
    return float(TRAINING_PASSES * counter.get_total_flops())


def measured_peak(device: torch.device, precision: Precision, synchronize: Callable[[], float]) -> float | None:
    """Operations per second of a large matrix product of two dense matrices: the fastest of several.

    None where not even the smallest product fits, or the device cannot compute it. tf32 is whatever the process allows
    for float32 (`device.prepare`).
    """
    best: float | None = None
    size = SMALLEST
    while size <= LARGEST:
        try:
            seconds = _product_seconds(size, device, _DTYPES[precision], synchronize)
        except (RuntimeError, MemoryError):  # out of memory, or a kernel that this device does not have
            return best
        best = max(best or 0.0, 2.0 * size**3 / seconds)
        if seconds > LONG_ENOUGH:
            break
        size *= 2
    return best


def _product_seconds(size: int, device: torch.device, dtype: torch.dtype, synchronize: Callable[[], float]) -> float:
    one, other = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    result = one @ other
    fastest = float("inf")
    began = synchronize()
    for _ in range(REPEATS):
        started = synchronize()
        torch.mm(one, other, out=result)
        fastest = min(fastest, synchronize() - started)
        if synchronize() - began > REPEATS * LONG_ENOUGH:
            break
    return max(fastest, time.get_clock_info("perf_counter").resolution)
