"""Matrices with momentum SGD, everything else with AdamW."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

WIDTH, CONTEXT, VOCABULARY = 128, 64, 1_000


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens = nn.Sequential(nn.Linear(CONTEXT, 2 * CONTEXT), nn.GELU(), nn.Linear(2 * CONTEXT, CONTEXT))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Mixer() for _ in range(4)))
        self.head = nn.Linear(WIDTH, 20)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)).mean(1))


def optimizer(model, lr):
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is q for q in matrices)]
    return [torch.optim.SGD(matrices, lr=10 * lr, momentum=0.9), torch.optim.AdamW(others, lr=lr)]


generator = torch.Generator().manual_seed(0)
x = torch.randint(VOCABULARY, (1024, CONTEXT), generator=generator)
y = torch.randint(20, (1024,), generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:896], y[:896]),
    valid=(x[896:], y[896:]),
    optimizer=optimizer,
)
