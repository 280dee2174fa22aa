"""A small decoder-only language model, written to be read: RMSNorm, rotary positions, SwiGLU, no biases, untied."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Decoder(nn.Module):
    """Predicts the next token at every position of `(batch, time)` token ids: logits `(batch, time, vocabulary)`.

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
            raise ValueError(f"d_model {d_model} does not divide into {heads} heads of an even width")
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(Block(d_model, heads, d_ff, dropout) for _ in range(layers))
        self.norm = nn.RMSNorm(d_model)
        self.head = _linear(d_model, vocabulary)
        nn.init.trunc_normal_(self.embedding.weight)
        cos, sin = rotary_table(sequence_length, d_model // heads, rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        time = tokens.shape[1]
        cos, sin = self.get_buffer("cos")[:time], self.get_buffer("sin")[:time]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention, then feed-forward; each on a normalised copy and added to the residual stream."""

    def __init__(self, d_model: int, heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(d_model)
        self.attention = Attention(d_model, heads)
        self.feed_forward_norm = nn.RMSNorm(d_model)
        self.feed_forward = SwiGLU(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
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
        _initialise(self.query_key_value.weight, d_model, d_model)  # three square maps in one

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time, d_model = x.shape
        heads = self.query_key_value(x).view(batch, time, 3, self.heads, d_model // self.heads)
        heads = heads.permute(2, 0, 3, 1, 4)  # (query | key | value, batch, head, time, width)
        query, key = rotate(heads[:2], cos, sin)  # both in one go: half the operations
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
        _initialise(self.gate_up.weight, d_model, d_ff)  # two maps in one

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        output: Tensor = self.down(F.silu(gate) * up)
        return output


def rotary_table(sequence_length: int, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine of each channel's angle at each position, both `(sequence_length, width)`.

    Channels i and i + width/2 form a pair that turns by position · theta^(−2i/width); the sine of the first of them is
    negative, which makes `rotate` a rotation.
    """
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(sequence_length, dtype=torch.float64), frequencies)
    dtype = torch.get_default_dtype()
    return (
        torch.cat((angles.cos(), angles.cos()), dim=-1).to(dtype),
        torch.cat((-angles.sin(), angles.sin()), dim=-1).to(dtype),
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each channel pair of `(…, time, width)` by its position's angle; `roll` swaps the halves of the pairs."""
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    _initialise(layer.weight, inputs, outputs)
    return layer


def _initialise(weight: Tensor, inputs: int, outputs: int) -> None:
    """Normal with variance 2 / (inputs + outputs), cut at three deviations (Glorot & Bengio 2010)."""
    deviation = math.sqrt(2 / (inputs + outputs))
    nn.init.trunc_normal_(weight, std=deviation, a=-3 * deviation, b=3 * deviation)
