"""Forecasting with a GRU cell in a Python loop, fed with its own output."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import batchlab

SEEN, AHEAD, WIDTH = 48, 24, 192


class Forecast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell1, self.cell2 = nn.GRUCell(12, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 12)

    def forward(self, x):
        h1 = h2 = x.new_zeros(len(x), WIDTH)
        outputs = []
        value = x[:, 0]
        for step in range(SEEN + AHEAD):
            value = x[:, step] if step < SEEN else self.head(h2)
            h1 = self.cell1(value, h1)
            h2 = self.cell2(h1, h2)
            outputs.append(self.head(h2))
        return torch.stack(outputs[-AHEAD:], 1)


generator = torch.Generator().manual_seed(0)
series = torch.randn(1280, SEEN + AHEAD, 12, generator=generator).cumsum(1) * 0.1
task = batchlab.task(
    model=Forecast,
    loss=lambda model, x, y: mse_loss(model(x), y),
    train=(series[:1024, :SEEN], series[:1024, SEEN:]),
    valid=(series[1024:, :SEEN], series[1024:, SEEN:]),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr),
)
