"""A multilayer perceptron on tabular data, counted in samples: batchlab study examples/tabular_model.py

The data follow a fixed formula with noise (Friedman 1991, "Multivariate Adaptive Regression Splines", problem 1): five
columns matter, five do not. No model can have a mean squared error below 1, the variance of the noise.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import batchlab


def friedman(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of shape (samples, 10), and the value to predict for each row."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, 1, (samples, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return (2 * x - 1).astype(np.float32), (y + random.normal(0, 1, samples)).astype(np.float32)


class Regressor(nn.Module):
    """Two hidden layers. The output bias starts at the mean of the training targets, so no steps are spent on it."""

    def __init__(self, mean: float, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(10, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )
        nn.init.constant_(self.layers[-1].bias, mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).squeeze(1)


def loss(model, x, y):
    """Mean squared error over the rows of the batch."""
    return F.mse_loss(model(x), y)


train = friedman(20_000, seed=0)
task = batchlab.task(
    model=lambda: Regressor(float(train[1].mean())),
    loss=loss,
    train=train,
    valid=friedman(2_000, seed=1),
    unit="samples",
)
