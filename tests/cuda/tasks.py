"""Tasks that the tests of this folder train on the imaginary card."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import batchlab
from batchlab.core.task import Task
from batchlab.torch_.models import Decoder, next_token_loss

IDS = np.arange(65 * 512) % 1000
LAYER_BYTES = 4 * 1024 * 1024
"""Weights of one layer of `wide`."""


def decoder(layers: int = 2) -> Task:
    """Attention, norm layers and an embedding."""
    return batchlab.task(
        model=lambda: Decoder(1000, 64, 128, layers, 4, 344),
        loss=next_token_loss,
        train=IDS,
        valid=IDS[: 65 * 64],
        sequence_length=64,
    )


class Wide(nn.Module):
    """Few weights, and `width` float32 activations for each sample: 32 MiB."""

    def __init__(self, width: int = 8 * 2**20) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x[:, :1] * self.scale)


def wide() -> Task:
    """A sample takes much more memory than all weights, so a card is full after a few."""
    x = np.zeros((64, 4), np.float32)
    return batchlab.task(
        model=Wide, loss=lambda model, x, y: model(x).square().mean(), train=(x, x), valid=(x[:8], x[:8])
    )


def pictures() -> Task:
    """Images of bytes, convolutions and batch norm."""

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(16, 10),
        )  # fmt: skip

    images = np.zeros((64, 3, 32, 32), np.uint8), np.arange(64) % 10
    return batchlab.task(
        model=network,
        loss=lambda model, x, y: cross_entropy(model(x.float() / 255), y),
        train=images,
        valid=images,
    )


decoder_task, wide_task, pictures_task = decoder(), wide(), pictures()
