"""A language model with a large vocabulary whose loss is computed in chunks, recomputed in the backward pass."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import batchlab

VOCABULARY, WIDTH, CONTEXT, CHUNK = 8_000, 96, 64, 256


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU(), nn.Linear(8 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.lstm(self.tokens(tokens))[0]
        return x + self.mlp(x)


def part(head, hidden, targets):
    return cross_entropy(head(hidden), targets, reduction="sum")


def loss(model, x, y):
    hidden, targets = model(x).flatten(0, 1), y.flatten()
    total = 0.0
    for start in range(0, len(targets), CHUNK):
        piece = slice(start, start + CHUNK)
        total = total + checkpoint(part, model.head, hidden[piece], targets[piece], use_reentrant=False)
    return total / len(targets)


tokens = torch.randint(VOCABULARY, (1024 * CONTEXT + 1,), generator=torch.Generator().manual_seed(0)).numpy()
task = batchlab.task(
    model=Model,
    loss=loss,
    train=tokens[: 896 * CONTEXT + 1],
    valid=tokens[896 * CONTEXT :],
    sequence_length=CONTEXT,
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
