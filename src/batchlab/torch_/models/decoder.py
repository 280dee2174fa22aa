"""A small decoder-only language model: RMSNorm, rotary positions, SwiGLU, no biases, untied embeddings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Decoder(nn.Module):
    """Predicts the next token at every position. Raises ValueError if d_model is not divisible by 2 · heads.

    Parameters: 2·v·d + layers·(4·d² + 3·d·d_ff + 2·d) + d for vocabulary v and width d. The published reference of
    22,696,448 is Decoder(10_000, 256, 512, 4, 16, 1344).
    """

    def __init__(
        self,
        vocabulary: int,
        sequence_length: int,
        d_model: int,
        layers: int,
        heads: int,
        d_ff: int,
        rope_theta: float = 10_000.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if d_model % (2 * heads):
            raise ValueError(f"d_model {d_model} is not divisible into {heads} heads of even width")
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(Block(d_model, heads, d_ff, dropout) for _ in range(layers))
        self.norm = nn.RMSNorm(d_model)
        self.head = _linear(d_model, vocabulary)
        nn.init.trunc_normal_(self.embedding.weight)
        cos, sin = rotary_table(sequence_length, d_model // heads, rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape `(batch, time, vocabulary)` for token ids of shape `(batch, time)`."""
        time = tokens.shape[1]
        cos, sin = self.get_buffer("cos")[:time], self.get_buffer("sin")[:time]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention, then feed-forward; each normalises its input and adds its output to the residual stream."""

    def __init__(self, d_model: int, heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(d_model)
        self.attention = Attention(d_model, heads)
        self.feed_forward_norm = nn.RMSNorm(d_model)
        self.feed_forward = SwiGLU(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map `x` of shape `(batch, time, d_model)` to the same shape; `cos`, `sin` of shape `(time, head width)`."""
        x = x + self.dropout(self.attention(self.attention_norm(x), cos, sin))
        output: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return output


class Attention(nn.Module):
    """Causal self-attention with rotary positions (Su et al. 2021, arXiv:2104.09864)."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias=False)
        self.output = _linear(d_model, d_model)
        _initialise(self.query_key_value.weight, d_model, d_model)  # three square matrices in one

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map `x` of shape `(batch, time, d_model)` to the same shape; `cos`, `sin` of shape `(time, head width)`."""
        batch, time, d_model = x.shape
        heads = self.query_key_value(x).view(batch, time, 3, self.heads, d_model // self.heads)
        heads = heads.permute(2, 0, 3, 1, 4)  # (query | key | value, batch, head, time, width)
        query, key = rotate(heads[:2], cos, sin)  # both in one call: half the operations
        value = heads[2]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, time, d_model))
        return output


class SwiGLU(nn.Module):
    """Gated feed-forward layer: down(silu(gate(x)) · up(x)) (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.down = _linear(d_ff, d_model)
        _initialise(self.gate_up.weight, d_model, d_ff)  # two matrices in one

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` of shape `(…, d_model)` to the same shape."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        output: Tensor = self.down(F.silu(gate) * up)
        return output


def rotary_table(sequence_length: int, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine of the angle of each channel at each position, both of shape `(sequence_length, width)`.

    Channels i and i + width/2 form a pair that is rotated by position · theta^(−2i/width). The sine of the first
    channel of a pair is negated, which makes `rotate` a rotation.
    """
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(sequence_length, dtype=torch.float64), frequencies)
    dtype = torch.get_default_dtype()
    return (
        torch.cat((angles.cos(), angles.cos()), dim=-1).to(dtype),
        torch.cat((-angles.sin(), angles.sin()), dim=-1).to(dtype),
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each channel pair of `x`, shape `(…, time, width)`, by the angle of its position."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin  # roll swaps the two channels of each pair


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    _initialise(layer.weight, inputs, outputs)
    return layer


def _initialise(weight: Tensor, inputs: int, outputs: int) -> None:
    """Normal with variance 2 / (inputs + outputs), truncated at 3 standard deviations (Glorot & Bengio 2010)."""
    deviation = math.sqrt(2 / (inputs + outputs))
    nn.init.trunc_normal_(weight, std=deviation, a=-3 * deviation, b=3 * deviation)
