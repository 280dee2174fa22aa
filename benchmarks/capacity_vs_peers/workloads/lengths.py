"""Tagging sequences of 8 to 256 tokens, most of them short; a batch is padded to its longest sequence."""

import hashlib

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, WIDTH, LAYERS, TAGS, LONGEST = 2_000, 128, 2, 40, 256
PADDING = -100


class Sequences:
    """Sequences of varying length as a Dataset: `gather` pads to the longest requested sample."""

    def __init__(self, samples: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.lengths = np.clip(random.lognormal(3.6, 0.6, samples), 8, LONGEST).astype(np.int64)
        self.tokens = [random.integers(0, VOCABULARY, length) for length in self.lengths]
        self.tags = [random.integers(0, TAGS, length) for length in self.lengths]

    def __len__(self):
        return len(self.tokens)

    def gather(self, indices):
        longest = int(self.lengths[indices].max())
        x = np.zeros((len(indices), longest), np.int64)
        y = np.full((len(indices), longest), PADDING, np.int64)
        for row, index in enumerate(indices):
            length = self.lengths[index]
            x[row, :length], y[row, :length] = self.tokens[index], self.tags[index]
        return x, y

    @property
    def digest(self):
        return hashlib.sha256(b"".join(tokens.tobytes() for tokens in self.tokens)).hexdigest()


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.positions(places)))


task = batchlab.task(
    model=Tagger,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=PADDING),
    train=Sequences(2048, 0),
    valid=Sequences(512, 1),
    unit="samples",
    count=lambda x, y: float((y != PADDING).sum()),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
