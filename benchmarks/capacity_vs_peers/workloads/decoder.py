"""A decoder-only language model: d_model 256, 4 layers, sequence 128, vocabulary 10,000."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS = 10_000, 128, 256, 4, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, time, _ = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(batch, time, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, time, WIDTH))
        return x + self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(places))))


random = np.random.default_rng(0)
task = batchlab.task(
    model=Decoder,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=random.integers(0, VOCABULARY, 2048 * LENGTH + 1),
    valid=random.integers(0, VOCABULARY, 512 * LENGTH + 1),
    sequence_length=LENGTH,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
