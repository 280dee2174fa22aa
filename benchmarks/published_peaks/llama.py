"""Llama 3 with selective activation checkpointing, as torchtitan trains it, for traces."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

WIDTH, LAYERS, HEADS, GROUPS, FEED, VOCABULARY = 4096, 32, 32, 8, 14_336, 128_256
"""Llama 3.1 8B."""

ATTENTION = (
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
)


class Attention(nn.Module):
    """Grouped queries and rotary positions."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, groups * size, bias=False) for _ in range(2))

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        batch, time, _ = x.shape
        queries, keys, values = (
            layer(x).view(batch, time, count, -1)
            for layer, count in ((self.wq, self.heads), (self.wk, self.groups), (self.wv, self.groups))
        )
        queries, keys = turned(queries, turns), turned(keys, turns)
        keys, values = (
            part[:, :, :, None, :].expand(-1, -1, -1, self.heads // self.groups, -1).reshape(*queries.shape)
            for part in (keys, values)
        )
        mixed = scaled_dot_product_attention(*(p.transpose(1, 2) for p in (queries, keys, values)), is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, time, -1))


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions by complex numbers in float32, as in the published code."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None, :]).flatten(3).type_as(x)


class Block(nn.Module):
    """Attention and a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, groups: int, feed: int) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, groups)
        self.w1, self.w3 = nn.Linear(width, feed, bias=False), nn.Linear(width, feed, bias=False)
        self.w2 = nn.Linear(feed, width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        y = self.feed_norm(x)
        return x + self.w2(silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    """Blocks recomputed in backward but for attention and every other matrix product."""

    def __init__(
        self,
        width: int = WIDTH,
        layers: int = LAYERS,
        heads: int = HEADS,
        groups: int = GROUPS,
        feed: int = FEED,
        vocabulary: int = VOCABULARY,
        length: int = 8192,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, heads, groups, feed) for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("turns", torch.ones(length, width // heads // 2, dtype=torch.complex64), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            contexts = partial(create_selective_checkpoint_contexts, EveryOther())
            x = checkpoint(layer, x, self.turns, use_reentrant=False, context_fn=contexts)
        return self.output(self.norm(x))


class EveryOther:
    """Keeps the results of attention and of the first, third, fifth, … matrix product of a block."""

    def __init__(self) -> None:
        self._products: Counter[bool] = Counter()

    def __call__(self, context: Any, function: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        keep = function in ATTENTION
        if function is torch.ops.aten.mm.default:
            self._products[context.is_recompute] += 1
            keep = self._products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
