"""Chunked cross-entropy of the last linear layer, so that the logits of all targets never exist at the same time.

With N targets and V classes, the logits take N·V elements, and their log-softmax and its gradient as many each. In
chunks of n targets this is n·V, at the cost of computing the logits of each chunk again in the backward pass. (torch
2.13 has `F.linear_cross_entropy`, which the user would have to call; earlier versions have no equivalent.)

The linear layer returns DeferredLogits, which have a shape but no values. They can be reshaped, indexed along samples
and positions, and cast. `F.cross_entropy` computes them in chunks; any other operation computes them in full, as if
nothing had been deferred. A custom autograd.Function that takes the logits is not supported.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from batchlab.core.errors import InputError

MIN_ROWS = 256
"""Smaller chunks would save little memory and make the matrix products too small to be fast."""


class Deferral:
    """Records whether any cross-entropy consumed deferred logits."""

    def __init__(self) -> None:
        self.used = False

    def require_use(self) -> None:
        """Raises InputError if the forward pass and loss did not use them."""
        if not self.used:
            raise InputError(
                "chunked_loss found no cross-entropy to compute in chunks: the loss must be "
                "F.cross_entropy(model(x), y) with class indices, directly after an nn.Linear."
            )


def defer_logits(model: nn.Module, outside: Collection[nn.Module]) -> Deferral | None:
    """Make each nn.Linear outside of these modules return DeferredLogits. Returns None if there is no such layer."""
    inside = {module for block in outside for module in block.modules()}
    layers = [module for module in model.modules() if type(module) is nn.Linear and module not in inside]
    deferral = Deferral()
    for layer in layers:
        layer.forward = _DeferredLinear(layer, deferral)  # type: ignore[method-assign, assignment]
    return deferral if layers else None


@dataclass(frozen=True, slots=True)
class _DeferredLinear:
    """The forward of a linear layer that defers its computation."""

    layer: nn.Linear
    deferral: Deferral

    def __call__(self, x: Tensor) -> Tensor:
        device = x.device.type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        product = _Product(x, self.layer.weight, self.layer.bias, autocast, torch.is_grad_enabled())
        return DeferredLogits.of(product, self.deferral)


@dataclass(frozen=True, slots=True)
class _Product:
    """rows · weightᵀ + bias in the autocast and gradient mode of the original call, cast to `cast` if not None."""

    rows: Tensor  # (…, width)
    weight: Tensor  # (classes, width)
    bias: Tensor | None
    autocast: torch.dtype | None
    gradients: bool
    cast: torch.dtype | None = None
    classes_second: bool = False  # (batch, classes, …), the layout of cross_entropy, instead of (…, classes)

    @property
    def shape(self) -> tuple[int, ...]:
        leading, classes = self.rows.shape[:-1], self.weight.shape[0]
        return (leading[0], classes, *leading[1:]) if self.classes_second else (*leading, classes)

    @property
    def dtype(self) -> torch.dtype:
        return self.cast or self.autocast or self.rows.dtype

    def of(self, rows: Tensor) -> Tensor:
        """The same product for other rows."""
        device = rows.device.type
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            result = F.linear(rows, self.weight, self.bias)
        result = result if self.cast is None else result.to(self.cast)
        return result.movedim(-1, 1) if self.classes_second else result

    def whole(self) -> Tensor:
        """The product for all rows."""
        with torch.set_grad_enabled(self.gradients):
            return self.of(self.rows)


class DeferredLogits(Tensor):
    """A tensor of logits that are computed when their values are needed."""

    _product: _Product
    _deferral: Deferral
    _whole: Tensor | None

    @classmethod
    def of(cls, product: _Product, deferral: Deferral) -> DeferredLogits:
        """Deferred logits with the shape, dtype and device of the product."""
        logits: DeferredLogits = torch.Tensor._make_wrapper_subclass(
            cls, product.shape, dtype=product.dtype, device=product.rows.device
        )
        logits._product, logits._deferral, logits._whole = product, deferral, None
        return logits

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        logits = args[0] if args and isinstance(args[0], DeferredLogits) else None
        with torch._C.DisableTorchFunctionSubclass():
            if logits is not None:
                if func in _METADATA:
                    return func(*args, **kwargs)
                if (product := _follow(logits._product, func, args[1:], kwargs)) is not None:
                    return cls.of(product, logits._deferral)
                if func is F.cross_entropy and _can_chunk(logits._product, *args[1:], **kwargs):
                    logits._deferral.used = True
                    return _cross_entropy(logits._product, *args[1:], **kwargs)
            return func(*_computed(args), **_computed(kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{func} received deferred logits; remove chunked_loss from the memory optimizations.")

    def compute(self) -> Tensor:
        """Compute all logits, once."""
        if self._whole is None:
            self._whole = self._product.whole()
        return self._whole


def _computed(value: Any) -> Any:
    if isinstance(value, DeferredLogits):
        return value.compute()
    if isinstance(value, tuple | list):
        return type(value)(map(_computed, value))
    return {name: _computed(item) for name, item in value.items()} if isinstance(value, dict) else value


_METADATA = {
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.__len__,
    Tensor.is_floating_point,
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim")),
}
_RESHAPES = {Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten}


def _follow(product: _Product, func: Any, args: Any, kwargs: Any) -> _Product | None:
    """The product after an operation that keeps the logits of each row together; None for other operations."""
    if func is Tensor.contiguous:
        return product
    if func is Tensor.float:
        return replace(product, cast=torch.float32)
    if func is Tensor.to and len(args) == 1 and isinstance(args[0], torch.dtype) and not kwargs:
        return replace(product, cast=args[0])
    if func in (Tensor.transpose, torch.transpose, Tensor.permute, torch.permute):
        return _permuted(product, func, args, kwargs)
    if product.classes_second:
        return None
    if func in _RESHAPES and not any(isinstance(arg, torch.dtype) for arg in args):
        shape = func(torch.empty(product.shape, device="meta"), *args, **kwargs).shape
        if shape and shape[-1] == product.shape[-1]:
            return replace(product, rows=product.rows.reshape(*shape[:-1], product.rows.shape[-1]))
    if func is Tensor.__getitem__ and (index := _leading_index(args[0], len(product.shape))) is not None:
        return replace(product, rows=product.rows[index])
    return None


def _permuted(product: _Product, func: Any, args: Any, kwargs: Any) -> _Product | None:
    """The product with the classes moved from last to second axis, or back; None for other permutations."""
    axes = range(len(product.shape))
    # With all axes of length 2, strides reveal the order of the axes, even where the real tensor has length 1.
    strides = func(torch.empty((2,) * len(axes), device="meta"), *args, **kwargs).stride()
    order = [len(axes) - stride.bit_length() for stride in strides]
    if len(axes) < 3:
        return None
    forward, backward = [0, len(axes) - 1, *axes[1:-1]], [0, *axes[2:], 1]
    if order == (backward if product.classes_second else forward):
        return replace(product, classes_second=not product.classes_second)
    return None


def _leading_index(index: Any, axes: int) -> Any:
    """The row index for a basic index or a mask; None for other indices and if the classes are indexed."""
    if isinstance(index, Tensor):
        return index if index.dtype is torch.bool and index.ndim < axes else None
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(isinstance(part, int | slice) or part is Ellipsis for part in parts) or parts.count(Ellipsis) > 1:
        return None
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (axes - len(parts) + 1)
    if len(parts) == axes and parts.pop() != slice(None):
        return None
    return tuple(parts)


def _can_chunk(
    product: _Product,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> bool:
    return (
        reduction in ("mean", "sum")
        and size_average is None
        and reduce is None
        and not target.is_floating_point()
        and (product.classes_second or len(product.shape) == 2)
    )


def _cross_entropy(
    product: _Product,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`F.cross_entropy` of class indices: the sum over chunks, divided once by the denominator of the mean.

    With n = N·d / V, the logits of a chunk have about as many elements as all rows together.
    """
    width, classes = product.rows.shape[-1], product.weight.shape[0]
    rows, target = product.rows.reshape(-1, width), target.reshape(-1)
    flat = replace(product, classes_second=False)
    size = max(MIN_ROWS, math.ceil(len(rows) * width / classes))

    def chunk(part: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(
            flat.of(part), targets, weight, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
        )

    def recomputed(part: Tensor, targets: Tensor) -> Tensor:
        result: Tensor = checkpoint(chunk, part, targets, use_reentrant=False, preserve_rng_state=False)
        return result

    keeps_graph = product.gradients and torch.is_grad_enabled()
    parts = zip(torch.split(rows, size), torch.split(target, size), strict=True)
    total = torch.stack(list(starmap(recomputed if keeps_graph else chunk, parts))).sum()
    if reduction == "sum":
        return total
    counted = target != ignore_index
    return total / (counted.sum() if weight is None else (weight[target.clamp(min=0)] * counted).sum())
