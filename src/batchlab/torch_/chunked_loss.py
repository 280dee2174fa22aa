"""The last linear layer and its cross-entropy in pieces, so that the logits of all targets never exist at once.

With N targets and V classes the logits take N·V numbers, their log-softmax and its gradient as many each; in pieces of
n targets it is n·V, at the price of computing each piece's logits once more in the backward pass. (torch 2.13 has
`F.linear_cross_entropy`, which the person would have to call; versions before it have nothing.)

The linear layer returns DeferredLogits, which know their shape but hold no numbers. They can be reshaped, indexed along
samples and positions, and cast; `F.cross_entropy` computes them in pieces, anything else computes them whole, as if
nothing had been deferred. An autograd.Function of the person's own that takes the logits is beyond this.
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

LEAST_ROWS = 256
"""Fewer rows at a time would save little and leave matrix products too small to be fast."""


class Deferral:
    """Whether any cross-entropy took deferred logits."""

    def __init__(self) -> None:
        self.used = False

    def require_use(self) -> None:
        """InputError where a whole forward pass and loss had no use for them."""
        if not self.used:
            raise InputError(
                "chunked_loss found no cross-entropy to compute in pieces: it needs a loss that is "
                "F.cross_entropy(model(x), y), with class indices, right after an nn.Linear."
            )


def defer_logits(model: nn.Module, outside: Collection[nn.Module]) -> Deferral | None:
    """Let every nn.Linear that is not inside these modules return DeferredLogits; None where there is none."""
    inside = {module for block in outside for module in block.modules()}
    layers = [module for module in model.modules() if type(module) is nn.Linear and module not in inside]
    deferral = Deferral()
    for layer in layers:
        layer.forward = _DeferredLinear(layer, deferral)  # type: ignore[method-assign, assignment]
    return deferral if layers else None


@dataclass(frozen=True, slots=True)
class _DeferredLinear:
    """A linear layer's forward that computes nothing yet."""

    layer: nn.Linear
    deferral: Deferral

    def __call__(self, x: Tensor) -> Tensor:
        device = x.device.type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        product = _Product(x, self.layer.weight, self.layer.bias, autocast, torch.is_grad_enabled())
        return DeferredLogits.of(product, self.deferral)


@dataclass(frozen=True, slots=True)
class _Product:
    """rows · weightᵀ + bias under the autocast and gradient mode of its time, then cast to `dtype` if one was asked."""

    rows: Tensor  # (…, width)
    weight: Tensor  # (classes, width)
    bias: Tensor | None
    autocast: torch.dtype | None
    gradients: bool
    cast: torch.dtype | None = None
    classes_second: bool = False  # (batch, classes, …), as cross_entropy has it, instead of (…, classes)

    @property
    def shape(self) -> tuple[int, ...]:
        leading, classes = self.rows.shape[:-1], self.weight.shape[0]
        return (leading[0], classes, *leading[1:]) if self.classes_second else (*leading, classes)

    @property
    def dtype(self) -> torch.dtype:
        return self.cast or self.autocast or self.rows.dtype

    def of(self, rows: Tensor) -> Tensor:
        """The same of other rows."""
        device = rows.device.type
        with torch.autocast(device, dtype=self.autocast, enabled=self.autocast is not None):
            result = F.linear(rows, self.weight, self.bias)
        result = result if self.cast is None else result.to(self.cast)
        return result.movedim(-1, 1) if self.classes_second else result

    def whole(self) -> Tensor:
        with torch.set_grad_enabled(self.gradients):
            return self.of(self.rows)


class DeferredLogits(Tensor):
    """A tensor of logits that are computed when somebody needs their values."""

    _product: _Product
    _deferral: Deferral
    _whole: Tensor | None

    @classmethod
    def of(cls, product: _Product, deferral: Deferral) -> DeferredLogits:
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
                if func is F.cross_entropy and _in_pieces(logits._product, *args[1:], **kwargs):
                    logits._deferral.used = True
                    return _cross_entropy(logits._product, *args[1:], **kwargs)
            return func(*_computed(args), **_computed(kwargs))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{func} was given logits that have not been computed; leave the saving chunked_loss out.")

    def compute(self) -> Tensor:
        """All of them, once."""
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
    """The product after an operation that keeps each row's logits together; None for any other operation."""
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
    """Only moving the classes from last to second place, or back."""
    axes = range(len(product.shape))
    # The strides of a tensor whose axis i is 2 long are the order of its axes, also where the real one is 1 long.
    strides = func(torch.empty((2,) * len(axes), device="meta"), *args, **kwargs).stride()
    order = [len(axes) - stride.bit_length() for stride in strides]
    if len(axes) < 3:
        return None
    there, back = [0, len(axes) - 1, *axes[1:-1]], [0, *axes[2:], 1]
    if order == (back if product.classes_second else there):
        return replace(product, classes_second=not product.classes_second)
    return None


def _leading_index(index: Any, axes: int) -> Any:
    """A basic index or one mask, as an index of the rows; None where it reaches into the classes or is neither."""
    if isinstance(index, Tensor):
        return index if index.dtype is torch.bool and index.ndim < axes else None
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(isinstance(part, int | slice) or part is Ellipsis for part in parts) or parts.count(Ellipsis) > 1:
        return None
    if Ellipsis in parts:
        place = parts.index(Ellipsis)
        parts[place : place + 1] = [slice(None)] * (axes - len(parts) + 1)
    if len(parts) == axes and parts.pop() != slice(None):
        return None
    return tuple(parts)


def _in_pieces(
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
    """`F.cross_entropy` of class indices: the sum over pieces, divided once by what a mean divides by.

    A piece's logits are about as many numbers as all rows together, n = N·d / V.
    """
    width, classes = product.rows.shape[-1], product.weight.shape[0]
    rows, target = product.rows.reshape(-1, width), target.reshape(-1)
    flat = replace(product, classes_second=False)
    size = max(LEAST_ROWS, math.ceil(len(rows) * width / classes))

    def piece(part: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(
            flat.of(part), targets, weight, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
        )

    def recomputed(part: Tensor, targets: Tensor) -> Tensor:
        result: Tensor = checkpoint(piece, part, targets, use_reentrant=False, preserve_rng_state=False)
        return result

    keeps_graph = product.gradients and torch.is_grad_enabled()
    parts = zip(torch.split(rows, size), torch.split(target, size), strict=True)
    total = torch.stack(list(starmap(recomputed if keeps_graph else piece, parts))).sum()
    if reduction == "sum":
        return total
    counted = target != ignore_index
    return total / (counted.sum() if weight is None else (weight[target.clamp(min=0)] * counted).sum())
