"""Sentence classification: a packed bidirectional LSTM over arrays that were padded to one length beforehand."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import batchlab

VOCABULARY, LONGEST, WIDTH = 3_000, 200, 96


class Sentences(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * WIDTH, 5)

    def forward(self, words):
        lengths = (words != 0).sum(1)
        packed = pack_padded_sequence(self.words(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(outputs.max(dim=1).values)


random = np.random.default_rng(0)
lengths = np.clip(random.lognormal(3.2, 0.7, 2304), 4, LONGEST).astype(int)
words = np.zeros((2304, LONGEST), np.int64)
for row, length in enumerate(lengths):
    words[row, :length] = random.integers(1, VOCABULARY, length)
labels = random.integers(0, 5, 2304)
task = batchlab.task(
    model=Sentences,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(words[:2048], labels[:2048]),
    valid=(words[2048:], labels[2048:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
