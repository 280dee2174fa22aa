"""CUDA's autocast rules for tensors on a CPU, so that a trace on a CPU predicts the memory of a step on CUDA.

Autocast has its own list of operations for each kind of device (aten/src/ATen/autocast_mode.cpp and .h). With those of
a CPU, the bf16 trace of a decoder with 50,000 tokens was 13 % too high: a CPU computes the whole cross-entropy in
float32, while CUDA computes log-softmax in bf16 and only the rest in float32. tests/cuda compares types with torch's
CUDA build. Operations that promote their arguments to the widest type (addcmul, scatter_add, …) are as on a CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

IN_FLOAT32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh"),
    *("tan", "softplus", "pow.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor"),
    *("layer_norm", "native_layer_norm", "group_norm", "rms_norm"),
    *("norm.Scalar", "norm.ScalarOpt_dim", "frobenius_norm.dim", "renorm", "dist", "pdist", "cosine_similarity"),
    *("logsumexp", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
)
"""Operations whose arguments CUDA converts to float32, and a CPU does not."""

TO_FLOAT32 = ("softmax.int", "log_softmax.int", "cumsum", "cumprod", "sum", "sum.dim_IntList", "linalg_vector_norm")
"""The same where the call does not name the type of its result."""

AS_THEY_ARE = (
    *("cross_entropy_loss", "avg_pool3d", "adaptive_avg_pool3d", "max_pool3d", "adaptive_max_pool3d"),
    *("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d"),
)
"""Operations that a CPU computes in float32, and CUDA in the type of their arguments."""


@contextmanager
def cuda_autocast_rules() -> Iterator[None]:
    """Inside, autocast on a CPU follows these rules. It changes the process, so nothing else may compute meanwhile."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*[Oo]verriding a previously registered kernel")
            for name in IN_FLOAT32:
                library.impl(name, partial(_in_float32, _operation(name)), "AutocastCPU")
            for name in TO_FLOAT32:
                library.impl(name, partial(_to_float32, _operation(name)), "AutocastCPU")
            for name in AS_THEY_ARE:
                library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
        yield
    finally:
        library._destroy()


def _operation(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operation


def _below_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _in_float32(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with _below_autocast():
        args, kwargs = tree_map_only(Tensor, _float32, (args, kwargs))
        return operation(*args, **kwargs)


def _to_float32(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    given = kwargs.get("dtype") is not None or any(isinstance(argument, torch.dtype) for argument in args)
    if not given:
        return _in_float32(operation, *args, **kwargs)
    with _below_autocast():
        return operation(*args, **kwargs)
