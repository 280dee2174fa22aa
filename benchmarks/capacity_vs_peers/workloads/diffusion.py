"""A denoising diffusion model: time steps and noise are drawn in the loss function."""

import torch
from torch import nn
from torch.nn.functional import mse_loss, silu

import batchlab

STEPS = 100
betas = torch.linspace(1e-4, 0.02, STEPS)
kept = torch.cumprod(1 - betas, 0)


class Residual(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(64, channels)

    def forward(self, x, time):
        return x + self.conv(silu(self.norm(x))) + self.time(time)[:, :, None, None]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Embedding(STEPS, 64)
        self.first = nn.Conv2d(1, 24, 3, padding=1)
        self.down1, self.shrink = Residual(24), nn.Conv2d(24, 48, 3, stride=2, padding=1)
        self.middle1, self.middle2 = Residual(48), Residual(48)
        self.grow, self.up1 = nn.ConvTranspose2d(48, 24, 2, stride=2), Residual(24)
        self.last = nn.Conv2d(24, 1, 3, padding=1)

    def forward(self, x, t):
        time = silu(self.time(t))
        high = self.down1(self.first(x), time)
        low = self.middle2(self.middle1(self.shrink(high), time), time)
        return self.last(self.up1(self.grow(low) + high, time))


def loss(model, x, y):
    t = torch.randint(0, STEPS, (len(x),))
    noise = torch.randn_like(x)
    a = kept[t][:, None, None, None]
    return mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)


x = torch.rand(768, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2 - 1
y = torch.zeros(768)
task = batchlab.task(
    model=UNet,
    loss=loss,
    train=(x[:640], y[:640]),
    valid=(x[640:], y[640:]),
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
