"""A two-layer LSTM language model: width 128, vocabulary 5,000, sequence 64."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

VOCABULARY, LENGTH, WIDTH = 5_000, 64, 128


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.lstm(self.tokens(tokens))[0])


random = np.random.default_rng(0)
task = batchlab.task(
    model=Recurrent,
    loss=lambda model, x, y: cross_entropy(model(x).flatten(0, 1), y.flatten()),
    train=random.integers(0, VOCABULARY, 2048 * LENGTH + 1),
    valid=random.integers(0, VOCABULARY, 512 * LENGTH + 1),
    sequence_length=LENGTH,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
