"""A Wasserstein critic with a gradient penalty, so the loss itself contains a backward pass."""

import torch
from torch import nn

import batchlab


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(24, 48, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(48 * 64, 1),
        )

    def forward(self, x):
        return self.net(x)


def loss(model, real, fake):
    between = (0.5 * real + 0.5 * fake).requires_grad_(True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(model(between).sum(), between, create_graph=True)
    penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
    return model(fake).mean() - model(real).mean() + 10 * penalty


generator = torch.Generator().manual_seed(0)
real, fake = torch.rand(1024, 1, 32, 32, generator=generator), torch.randn(1024, 1, 32, 32, generator=generator)
task = batchlab.task(
    model=Critic,
    loss=loss,
    train=(real[:896], fake[:896]),
    valid=(real[896:], fake[896:]),
    count=lambda real, fake: len(real),
    optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr, betas=(0.0, 0.9)),
)
