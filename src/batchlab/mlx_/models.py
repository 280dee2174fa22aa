"""The models of the recipes in MLX, written to be read, copied and modified.

The same arithmetic and parameter names as in torch: weights of one load into the other.
"""

from __future__ import annotations

import math

import mlx.core as mx
import mlx.nn as nn

EPSILON = 1.1920929e-07
"""Of RMSNorm, as torch's default: the spacing of float32 at 1."""


class Decoder(nn.Module):
    """Predicts the next token at every position: RMSNorm, rotary positions, SwiGLU, no biases, untied embeddings.

    Parameters: 2·v·d + layers·(4·d² + 3·d·d_ff + 2·d) + d for vocabulary v and width d. Raises ValueError if d_model is
    not divisible by 2 · heads.
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
        self.embedding.weight = mx.random.truncated_normal(-2.0, 2.0, (vocabulary, d_model))
        self.blocks = [Block(d_model, heads, d_ff, dropout) for _ in range(layers)]
        self.norm = nn.RMSNorm(d_model, eps=EPSILON)
        self.head = _linear(d_model, vocabulary, d_model, vocabulary)
        # MLX takes arrays whose names begin with _ for no parameters
        self._cos, self._sin = rotary_table(sequence_length, d_model // heads, rope_theta)

    def __call__(self, tokens: mx.array) -> mx.array:
        """Logits of shape `(batch, time, vocabulary)` for token ids of shape `(batch, time)`."""
        time = tokens.shape[1]
        x = self.embedding(tokens)
        cos, sin = self._cos[:time].astype(x.dtype), self._sin[:time].astype(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        logits: mx.array = self.head(self.norm(x))
        return logits


class Block(nn.Module):
    """Attention, then feed-forward; each normalises its input and adds its output to the residual stream."""

    def __init__(self, d_model: int, heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(d_model, eps=EPSILON)
        self.attention = Attention(d_model, heads)
        self.feed_forward_norm = nn.RMSNorm(d_model, eps=EPSILON)
        self.feed_forward = SwiGLU(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def __call__(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        """Map `x` of shape `(batch, time, d_model)` to the same shape; `cos`, `sin` of shape `(time, head width)`."""
        x = x + self.dropout(self.attention(self.attention_norm(x), cos, sin))
        output: mx.array = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return output


class Attention(nn.Module):
    """Causal self-attention with rotary positions (Su et al. 2021, arXiv:2104.09864)."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = _linear(d_model, 3 * d_model, d_model, d_model)  # three square matrices in one
        self.output = _linear(d_model, d_model, d_model, d_model)

    def __call__(self, x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
        """Map `x` of shape `(batch, time, d_model)` to the same shape; `cos`, `sin` of shape `(time, head width)`."""
        batch, time, d_model = x.shape
        width = d_model // self.heads
        heads = self.query_key_value(x).reshape(batch, time, 3, self.heads, width).transpose(2, 0, 3, 1, 4)
        query, key = rotate(heads[0], cos, sin), rotate(heads[1], cos, sin)
        mixed = mx.fast.scaled_dot_product_attention(query, key, heads[2], scale=width**-0.5, mask="causal")
        output: mx.array = self.output(mixed.transpose(0, 2, 1, 3).reshape(batch, time, d_model))
        return output


class SwiGLU(nn.Module):
    """Gated feed-forward layer: down(silu(gate(x)) · up(x)) (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_up = _linear(d_model, 2 * d_ff, d_model, d_ff)  # two matrices in one
        self.down = _linear(d_ff, d_model, d_ff, d_model)

    def __call__(self, x: mx.array) -> mx.array:
        """Map `x` of shape `(…, d_model)` to the same shape."""
        gate, up = mx.split(self.gate_up(x), 2, axis=-1)
        output: mx.array = self.down(nn.silu(gate) * up)
        return output


def next_token_loss(model: nn.Module, x: mx.array, y: mx.array) -> mx.array:
    """Mean cross-entropy in nats of the model's predictions for `x` and the targets `y`, both `(batch, time)`."""
    loss: mx.array = nn.losses.cross_entropy(model(x).astype(mx.float32), y, reduction="mean")
    return loss


def rotary_table(sequence_length: int, width: int, theta: float) -> tuple[mx.array, mx.array]:
    """Cosine and signed sine of the angle of each channel at each position, both of shape `(sequence_length, width)`.

    Channels i and i + width/2 form a pair that is rotated by position · theta^(−2i/width). The sine of the first
    channel of a pair is negated, which makes `rotate` a rotation. Computed in float64, which Metal lacks.
    """
    frequencies = [theta ** (-channel / width) for channel in range(0, width, 2)]
    angles = [[position * frequency for frequency in frequencies] for position in range(sequence_length)]
    cos = [[math.cos(angle) for angle in row] for row in angles]
    sin = [[math.sin(angle) for angle in row] for row in angles]
    return mx.array([row + row for row in cos]), mx.array([[-one for one in row] + row for row in sin])


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Rotate each channel pair of `x`, shape `(…, time, width)`, by the angle of its position."""
    return x * cos + mx.roll(x, x.shape[-1] // 2, axis=-1) * sin  # roll swaps the two channels of each pair


def _linear(inputs: int, outputs: int, fan_in: int, fan_out: int) -> nn.Linear:
    """Normal with variance 2 / (fan_in + fan_out), truncated at 3 standard deviations (Glorot & Bengio 2010)."""
    layer = nn.Linear(inputs, outputs, bias=False)
    deviation = math.sqrt(2 / (fan_in + fan_out))
    layer.weight = deviation * mx.random.truncated_normal(-3.0, 3.0, (outputs, inputs))
    return layer
