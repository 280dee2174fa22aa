"""Stochastic depth: whole blocks are left out at random, decided by Python's own random numbers."""

import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

WIDTH, TOKENS, LAYERS, DROPPED = 96, 64, 8, 0.3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Dropout(0.5), nn.Linear(3 * WIDTH, WIDTH)
        )

    def forward(self, x):
        return x + self.net(x)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.head = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 10)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x):
        x = self.inputs(x)
        for block in self.blocks:
            if not self.training or random.random() > DROPPED:
                x = block(x)
        return self.head(x.mean(1))


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(1024, TOKENS, 8, generator=generator), torch.randint(10, (1024,), generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:896], y[:896]),
    valid=(x[896:], y[896:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
