"""A mixture of experts: a router sends each token to its best expert, which are found by nonzero()."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import batchlab

WIDTH, EXPERTS, TOKENS = 64, 4, 48


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 512), nn.GELU(), nn.Linear(512, WIDTH)) for _ in range(EXPERTS)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        gates = self.router(flat).softmax(-1)
        weight, chosen = gates.max(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, None] * expert(flat[rows]))
        return self.norm(x + out.view_as(x))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, WIDTH), *(Mixture() for _ in range(4)), nn.Linear(WIDTH, 16))

    def forward(self, x):
        return self.layers(x)


generator = torch.Generator().manual_seed(0)
x = torch.randn(1024, TOKENS, 16, generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: mse_loss(model(x), y),
    train=(x[:896], x[:896].flip(1)),
    valid=(x[896:], x[896:].flip(1)),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
