"""Click prediction: a large embedding table with sparse gradients, trained with SGD."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import batchlab

ITEMS, FIELDS, WIDTH = 100_000, 40, 32


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH, sparse=True)
        self.deep = nn.Sequential(nn.Linear(FIELDS * WIDTH, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.head = nn.Linear(512, 1)

    def forward(self, items):
        return self.head(self.deep(self.items(items).flatten(1))).squeeze(1)


generator = torch.Generator().manual_seed(0)
x = torch.randint(ITEMS, (16384, FIELDS), generator=generator)
y = torch.rand(16384, generator=generator).round()
task = batchlab.task(
    model=Clicks,
    loss=lambda model, x, y: binary_cross_entropy_with_logits(model(x), y),
    train=(x[:14336], y[:14336]),
    valid=(x[14336:], y[14336:]),
    optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr),
)
