"""Norms of the gradient that each micro-batch adds. MLX returns gradients, so no hooks are needed."""

from __future__ import annotations

from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from batchlab.core.protocols import AddedNorms

Named = dict[str, mx.array]


def norm_layer_names(model: nn.Module) -> frozenset[str]:
    """Names of the trainable parameters of norm layers: of modules whose class is called …Norm."""
    layers = [name for name, module in model.named_modules() if type(module).__name__.endswith("Norm")]
    named = tree_flatten(model.trainable_parameters())
    return frozenset(name for name, _ in named if name.rpartition(".")[0] in layers)


class NormSums:
    """Collects the norms of one step. Nothing waits for the device, and no gradient is kept."""

    def __init__(self, norm_layers: frozenset[str], parameters: Literal["all", "norm_layers"] = "all") -> None:
        self._norm_layers = norm_layers
        self._all = parameters == "all"
        self.squared: list[mx.array] = []
        self.growth: list[mx.array] = []  # |u + v|² − |u|² = 2·u·v + |v|²
        self._norm_layer_squared: list[mx.array] = []
        self._signs: tuple[mx.array, mx.array, mx.array] | None = None

    def add(self, before: Any, gradient: Any, last_share: float | None = None) -> None:
        """What one micro-batch added to the sum `before` (None: nothing yet).

        last_share: given for the last of a step, its fraction of the step's targets.
        """
        v, u = self._chosen(gradient), self._chosen(before)
        self.squared.append(_squared(v))
        overlap = [2 * _dot(u[name], value) for name, value in v.items()] if u else []
        self.growth.append(mx.stack([self.squared[-1], *overlap]).sum())
        self._norm_layer_squared.append(_squared(self._inner(v)))
        if last_share is not None:
            self._signs = _signs(u, v, last_share)
        mx.async_eval(self.squared, self.growth, self._norm_layer_squared, self._signs)

    def added(self, total: Any) -> AddedNorms:
        """The norms of the step whose whole gradient is `total`."""
        whole = self._chosen(total)
        inner = (self._norm_layer_squared, _squared(self._inner(whole))) if self._norm_layers else None
        return AddedNorms(self.squared, _squared(whole), inner, self._signs)

    def _chosen(self, gradient: Any) -> Named:
        named = {} if gradient is None else dict(tree_flatten(gradient))
        return named if self._all else self._inner(named)

    def _inner(self, named: Named) -> Named:
        return {name: value for name, value in named.items() if name in self._norm_layers}


def _squared(named: Named) -> mx.array:
    return mx.stack([mx.array(0.0), *(_dot(value, value) for value in named.values())]).sum()


def _dot(one: mx.array, other: mx.array) -> mx.array:
    return (one.astype(mx.float32) * other.astype(mx.float32)).sum()


def _signs(u: Named, v: Named, share: float) -> tuple[mx.array, mx.array, mx.array]:
    """(difference, agreement, absolute) as in `protocols.AddedNorms`."""
    pairs = [(u[name], value) for name, value in v.items()]
    difference = [mx.abs(a / (1 - share) - b / share).sum() for a, b in pairs]
    agreement = [(mx.sign(a) * b).sum() / share for a, b in pairs]
    absolute = [mx.abs(a + b).sum() for a, b in pairs]
    return mx.stack(difference).sum(), mx.stack(agreement).sum(), mx.stack(absolute).sum()
