"""SimCLR: two randomly disturbed views of every image, compared with all others of the batch."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import batchlab


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 96, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.project = nn.Sequential(nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 32))

    def forward(self, x):
        return normalize(self.project(self.net(x)), dim=1)


def augment(x):
    flipped = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(-1), x)
    return flipped * (0.8 + 0.4 * torch.rand(len(x), 3, 1, 1)) + 0.1 * torch.randn_like(x)


def loss(model, x, y):
    z = torch.cat([model(augment(x)), model(augment(x))])
    similar = z @ z.T / 0.5
    similar = similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    partner = torch.arange(len(z)).roll(len(x))
    return cross_entropy(similar, partner)


generator = torch.Generator().manual_seed(0)
x, y = torch.rand(640, 3, 32, 32, generator=generator), torch.zeros(640)
task = batchlab.task(
    model=Encoder,
    loss=loss,
    train=(x[:512], y[:512]),
    valid=(x[512:], y[512:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
