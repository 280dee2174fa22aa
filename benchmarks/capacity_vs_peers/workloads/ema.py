"""An image classifier that keeps an exponential moving average of its weights, updated in every training forward."""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab


class WithAverage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.GroupNorm(4, 64),
            nn.SiLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
        self.average = copy.deepcopy(self.net).requires_grad_(False)

    def forward(self, x):
        if not self.training:
            return self.average(x)
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        return self.net(x)


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(640, 3, 32, 32, generator=generator), torch.randint(10, (640,), generator=generator)
task = batchlab.task(
    model=WithAverage,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:512], y[:512]),
    valid=(x[512:], y[512:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
