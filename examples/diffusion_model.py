"""A small diffusion model of points in the plane: batchlab study examples/diffusion_model.py

The loss draws noise and a time for every sample, so the same batch has another loss with every draw. batchlab evaluates
all runs with the same draws, measures how much other draws would change the loss, and says so in the report.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import batchlab


def spiral(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on a spiral, and a target that the loss does not use."""
    random = np.random.default_rng(seed)
    angle = 3 * np.pi * np.sqrt(random.uniform(0, 1, samples))
    points = angle[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) / 6
    return (points + random.normal(0, 0.02, points.shape)).astype(np.float32), np.zeros(samples, dtype=np.int64)


class Denoiser(nn.Module):
    """Predicts the noise in a point from the noisy point and the time."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 + 8, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2)
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * (math.pi * 2.0 ** torch.arange(4))
        return self.layers(torch.cat([x, angles.sin(), angles.cos()], dim=1))


def loss(model, x, _):
    """Mean squared error of the predicted noise, at a random time of each sample (Ho et al. 2020, arXiv:2006.11239)."""
    time = torch.rand(len(x))
    noise = torch.randn_like(x)
    keep = torch.cos(0.5 * math.pi * time)[:, None]  # the cosine schedule of Nichol and Dhariwal 2021
    noisy = keep * x + (1 - keep**2).sqrt() * noise
    return F.mse_loss(model(noisy, time), noise)


task = batchlab.task(
    model=Denoiser, loss=loss, train=spiral(20_000, seed=0), valid=spiral(2_000, seed=1), unit="samples"
)
