"""Pairwise metric learning: every pair of a batch goes through a small network, so memory grows with its square."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import batchlab


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64))
        self.compare = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x):
        z = self.encoder(x)
        return self.compare((z[:, None] - z[None, :]).abs()).squeeze(-1)


def loss(model, x, y):
    same = (y[:, None] == y[None, :]).float()
    return binary_cross_entropy_with_logits(model(x), same)


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(2048, 128, generator=generator), torch.randint(10, (2048,), generator=generator)
task = batchlab.task(
    model=Pairs,
    loss=loss,
    train=(x[:1792], y[:1792]),
    valid=(x[1792:], y[1792:]),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr),
)
