"""A small convolutional network with BatchNorm: batchlab study examples/image_model.py

BatchNorm makes the samples of a batch influence each other, so splitting a batch would change the training.
`batchlab check` finds that out by itself and names the layer; the study then never splits a batch.

The images are drawn here by numpy, the same ones on every machine: 16×16 gratings of ten orientations (the classes)
with random phase, spacing and contrast, under noise that makes some of them ambiguous.
"""

import numpy as np
import torch.nn.functional as F
from torch import nn

import batchlab

CLASSES = 10


def gratings(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(images of shape (samples, 1, 16, 16), class of each)."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, samples)
    angle, phase, waves, contrast = (
        values[:, None, None]
        for values in (
            np.pi * labels / CLASSES,
            random.uniform(0, 2 * np.pi, samples),
            random.uniform(2, 4, samples),
            random.uniform(0.3, 1, samples),
        )
    )
    down, across = np.mgrid[0:1:16j, 0:1:16j]
    along = across * np.cos(angle) + down * np.sin(angle)
    images = contrast * np.sin(2 * np.pi * waves * along + phase) + random.normal(0, 1, (samples, 16, 16))
    return images[:, None].astype(np.float32), labels


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


def network() -> nn.Module:
    return nn.Sequential(block(1, 16), block(16, 32), nn.Flatten(), nn.Linear(32 * 4 * 4, CLASSES))


def loss(model, x, y):
    """Cross-entropy in nats, a mean over the images of the batch."""
    return F.cross_entropy(model(x), y)


task = batchlab.task(
    model=network,
    loss=loss,
    train=gratings(6000, seed=0),
    valid=gratings(1000, seed=1),
    unit="samples",
)
