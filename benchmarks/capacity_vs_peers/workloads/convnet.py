"""Six 3×3 convolutions with BatchNorm and ReLU on 64×64 colour images."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

CHANNELS, LAYERS, CLASSES = 20, 6, 10


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for number in range(LAYERS):
        layers += [nn.Conv2d(CHANNELS if number else 3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))


def images(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal((samples, 3, 64, 64), np.float32), random.integers(0, CLASSES, samples)


task = batchlab.task(
    model=network,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=images(1024, 0),
    valid=images(256, 1),
    unit="samples",
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
