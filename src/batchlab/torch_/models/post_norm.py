"""The decoder of Vaswani et al. 2017 (arXiv:1706.03762): post-norm, sinusoidal positions, biases."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PostNormDecoder(nn.Module):
    """Predicts the next token at every position. Raises ValueError if d_model is odd or not divisible by heads.

    Parameters: layers·(12·d² + 13·d) + (2·d + 1)·v for vocabulary v and width d; embeddings are untied.
    """

    def __init__(
        self, vocabulary: int, sequence_length: int, d_model: int, layers: int, heads: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        if d_model % heads or d_model % 2:
            raise ValueError(f"d_model {d_model} is odd or not divisible into {heads} heads")
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(PostNormBlock(d_model, heads, dropout) for _ in range(layers))
        self.head = nn.Linear(d_model, vocabulary)
        self.register_buffer("positions", sine_positions(sequence_length, d_model), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape `(batch, time, vocabulary)` for token ids of shape `(batch, time)`."""
        x = self.embedding(tokens) + self.get_buffer("positions")[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


class PostNormBlock(nn.Module):
    """Attention, then a feed-forward layer four times as wide; each adds its input and normalises the sum."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = BiasedAttention(d_model, heads)
        self.attention_norm = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` of shape `(batch, time, d_model)` to the same shape."""
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        output: Tensor = self.feed_forward_norm(x + self.dropout(self.down(F.relu(self.up(x)))))
        return output


class BiasedAttention(nn.Module):
    """Causal self-attention without positional encoding; the projections have biases."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` of shape `(batch, time, d_model)` to the same shape."""
        batch, time, d_model = x.shape
        heads = self.query_key_value(x).view(batch, time, 3, self.heads, d_model // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (batch, head, time, width)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, time, d_model))
        return output


def sine_positions(sequence_length: int, d_model: int) -> Tensor:
    """Sine and cosine of position · 10,000^(−2i/d_model) in channels 2i and 2i + 1, `(sequence_length, d_model)`."""
    rates = torch.exp(-math.log(10_000.0) * torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(torch.arange(sequence_length, dtype=torch.float64), rates)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(torch.get_default_dtype())
