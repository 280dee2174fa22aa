"""A small residual network with batch normalisation."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu

import batchlab


class Residual(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x):
        return relu(x + self.norm2(self.conv2(relu(self.norm1(self.conv1(x))))))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            Residual(16),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 1),
            Residual(32),
            Residual(32),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def forward(self, x):
        return self.layers(x)


generator = torch.Generator().manual_seed(0)
x, y = torch.randn(512, 3, 48, 48, generator=generator), torch.randint(10, (512,), generator=generator)
task = batchlab.task(
    model=Network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=(x[:384], y[:384]),
    valid=(x[384:], y[384:]),
    optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=5e-4),
)
