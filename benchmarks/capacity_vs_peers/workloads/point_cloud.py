"""Point clouds: each point gathers its nearest neighbours by distance, found anew in every layer."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

POINTS, NEIGHBOURS = 128, 12


class EdgeConv(nn.Module):
    def __init__(self, inputs, outputs) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))

    def forward(self, x):
        near = torch.cdist(x, x).topk(NEIGHBOURS, largest=False).indices
        rows = torch.arange(len(x))[:, None, None]
        edges = x[rows, near] - x[:, :, None]
        centre = x[:, :, None].expand_as(edges)
        return self.net(torch.cat([centre, edges], -1)).max(2).values


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(EdgeConv(3, 32), EdgeConv(32, 48))
        self.head = nn.Linear(48, 8)

    def forward(self, x):
        return self.head(self.layers(x).max(1).values)


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(512, POINTS, 3, generator=generator), torch.randint(8, (512,), generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:384], y[:384]),
    valid=(x[384:], y[384:]),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr),
)
