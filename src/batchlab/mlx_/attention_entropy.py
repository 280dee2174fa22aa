"""Entropy of attention weights, measured in a forward pass of an arbitrary model without changing it.

The entropy of one query's weights p over n keys is −Σ p ln p nats: ln n for uniform attention, 0 if all weight is on a
single key. It is measured at a few query positions and averaged over these and the samples, per head.

Supported: `mx.fast.scaled_dot_product_attention` without sinks, which `nn.MultiHeadAttention` uses, and `mx.softmax`
over the last axis inside a module whose name or class contains "attention" or "attn". Not supported: functions that
were imported by their own name, kernels of one's own, and a softmax composed of other operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

QUERIES = 16
"""Number of query positions measured, evenly spaced and including the last."""


class Entropies(NamedTuple):
    """Of one module: of each head, shape `(heads,)`, and of uniform weights."""

    heads: mx.array
    uniform: mx.array


@contextmanager
def attention_entropies(running: list[tuple[str, nn.Module]]) -> Iterator[dict[str, Entropies]]:
    """Inside the context, the entropies of every attention, by module. `running`: those that run, outermost first."""
    seen: dict[str, Entropies] = {}
    attend, softmax = mx.fast.scaled_dot_product_attention, mx.softmax

    def note(weights: mx.array) -> None:
        seen[running[-1][0] if running else "model"] = entropies(weights)

    def attend_noted(q: mx.array, k: mx.array, v: mx.array, **named: Any) -> mx.array:
        if named.get("sinks") is None:
            note(attention_weights(softmax, q, k, named["scale"], named.get("mask")))
        return attend(q, k, v, **named)

    def softmax_noted(a: mx.array, *arguments: Any, **named: Any) -> mx.array:
        weights = softmax(a, *arguments, **named)
        axis = arguments[0] if arguments else named.get("axis")
        inside = any("attention" in name or "attn" in name for name in _labels(running))
        if inside and weights.ndim >= 3 and axis in (-1, weights.ndim - 1):
            note(weights[..., mx.array(rows(weights.shape[-2])), :])
        return weights

    mx.fast.scaled_dot_product_attention, mx.softmax = attend_noted, softmax_noted
    try:
        yield seen
    finally:
        mx.fast.scaled_dot_product_attention, mx.softmax = attend, softmax


def _labels(running: list[tuple[str, nn.Module]]) -> Iterator[str]:
    for name, module in running:
        yield f"{name} {type(module).__name__}".lower()


def rows(queries: int) -> list[int]:
    """The query positions that are measured."""
    count = min(QUERIES, queries)
    return [(i + 1) * queries // count - 1 for i in range(count)]


def attention_weights(
    softmax: Callable[..., mx.array], query: mx.array, key: mx.array, scale: float, mask: mx.array | str | None
) -> mx.array:
    """softmax(query · keyᵀ · scale + mask) for a few queries, shape `(samples, heads, rows, keys)`.

    With masks as in `mx.fast.scaled_dot_product_attention`: "causal" aligns the last query with the last key.
    """
    chosen = mx.array(rows(query.shape[-2]))
    if key.shape[-3] != query.shape[-3]:
        key = mx.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    scores = query[..., chosen, :].astype(mx.float32) @ key.astype(mx.float32).swapaxes(-1, -2) * scale
    if isinstance(mask, str):
        last = chosen + key.shape[-2] - query.shape[-2]
        shown = mx.arange(key.shape[-2]) <= last[:, None]
    else:
        shown = mask if mask is None or mask.ndim < 2 or mask.shape[-2] == 1 else mask[..., chosen, :]
    if shown is not None:
        hides = shown.dtype == mx.bool_
        scores = mx.where(shown, scores, -math.inf) if hides else scores + shown.astype(mx.float32)
    return softmax(scores, axis=-1)


def entropies(weights: mx.array) -> Entropies:
    """Of weights of shape `(…, heads, queries, keys)`, or `(samples, queries, keys)` for a single head.

    Queries that may see no key are left out.
    """
    weights = (mx.expand_dims(weights, 1) if weights.ndim == 3 else weights).astype(mx.float32)
    visible = (weights > 0).sum(-1)
    entropy = -(weights * mx.log(mx.where(weights > 0, weights, 1.0))).sum(-1)
    by_head = [mx.moveaxis(one, -2, 0).reshape(one.shape[-2], -1) for one in (entropy, visible)]
    counted = by_head[1] > 0
    limit = mx.where(counted, mx.log(mx.maximum(by_head[1], 1)), 0.0)
    return Entropies(
        mx.where(counted, by_head[0], 0.0).sum(1) / counted.sum(1),
        limit.sum() / counted.sum(),
    )
