"""A vision transformer on 32×32 colour images: patches of 4×4, width 128, 4 layers."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab

WIDTH, LAYERS, HEADS, PATCH, SIDE, CLASSES = 128, 4, 4, 4, 32, 10


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images):
        return self.head(self.blocks(self.patches(images).flatten(2).mT + self.positions).mean(1))


def images(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.standard_normal((samples, 3, SIDE, SIDE), np.float32), random.integers(0, CLASSES, samples)


task = batchlab.task(
    model=VisionTransformer,
    loss=lambda model, x, y: cross_entropy(model(x), y),
    train=images(2048, 0),
    valid=images(512, 1),
    unit="samples",
    optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr),
)
