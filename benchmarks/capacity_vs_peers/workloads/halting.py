"""Adaptive computation time: a block is applied to every sample until its halting score says stop."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

WIDTH, TOKENS, DEEPEST = 96, 64, 12


class Ponder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(16, WIDTH)
        self.block = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.halt = nn.Linear(WIDTH, 1)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        state = self.inputs(x)
        used = torch.zeros(len(x))
        difficulty = x.std(dim=(1, 2))
        depth = 0
        while (used < 1).any() and depth < DEEPEST:
            running = used < 1
            state = torch.where(running[:, None, None], state + self.block(state), state)
            chance = torch.sigmoid(self.halt(state)).mean(dim=(1, 2)) / (1 + difficulty)
            used = used + chance.detach()
            depth += 1
        return self.head(state.mean(dim=1))


generator = torch.Generator().manual_seed(0)
spread = torch.rand(1024, 1, 1, generator=generator).exp()
x = torch.randn(1024, TOKENS, 16, generator=generator) * spread
y = torch.randint(10, (1024,), generator=generator)
task = batchlab.task(
    model=Ponder,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:896], y[:896]),
    valid=(x[896:], y[896:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
