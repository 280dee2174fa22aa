"""Structure of an arbitrary model: its repeated blocks, norm layers and trainable parameters."""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from batchlab.mlx_.modules import named_modules


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The repeated blocks of the model, in order: the siblings of one class with the most parameters in total.

    If nothing repeats, every layer that directly owns parameters.
    """
    siblings: dict[tuple[str, type[nn.Module]], dict[str, nn.Module]] = {}
    modules = named_modules(model)
    for name, module in modules.items():
        if name:
            siblings.setdefault((name.rpartition(".")[0], type(module)), {})[name] = module
    sizes = {key: sum(map(_size, group.values())) for key, group in siblings.items() if len(group) > 1}
    if sizes and max(sizes.values()):
        return siblings[max(sizes, key=sizes.__getitem__)]
    return {name: module for name, module in modules.items() if name and _owns_parameters(module)}


def _size(module: nn.Module) -> int:
    return sum(value.size for _, value in tree_flatten(module.parameters()))


def _owns_parameters(module: nn.Module) -> bool:
    return any(isinstance(value, mx.array) for value in module.parameters().values())


def trainable_parameters(model: nn.Module) -> dict[str, mx.array]:
    """Floating-point parameters that are not frozen, by name."""
    named = tree_flatten(model.trainable_parameters())
    return {name: value for name, value in named if mx.issubdtype(value.dtype, mx.floating)}


def norm_parameters(model: nn.Module, trained: Iterable[str]) -> dict[str, list[str]]:
    """Names of the trainable parameters of norm layers, grouped as `weight` (scale) and `bias` (shift).

    A norm layer is a module whose class name contains "norm". One-dimensional parameters whose name starts with b
    (bias, beta) count as shifts.
    """
    known, groups = frozenset(trained), dict[str, list[str]]()
    for name, module in named_modules(model).items():
        if "norm" not in type(module).__name__.lower():
            continue
        for own, value in module.parameters().items():
            full = f"{name}.{own}" if name else own
            if full in known and isinstance(value, mx.array) and value.ndim == 1:
                groups.setdefault("bias" if own.startswith("b") else "weight", []).append(full)
    return groups
