"""A multilayer perceptron in MLX, counted in samples: batchlab study examples/mlx_model.py

Points inside a ball or outside, with a tenth of the labels wrong. Needs `pip install 'batchlab[mlx]'`; batchlab sees by
the model that MLX computes. Nothing here calls mx.eval: batchlab does, after every micro-batch and every step.
"""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import batchlab


def points(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of shape (samples, 8), and a label of 0 or 1 for each."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(samples, 8)).astype(np.float32)
    wrong = random.random(samples) < 0.1
    return x, ((np.square(x).sum(axis=1) < 7.34) ^ wrong).astype(np.int32)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.RMSNorm(64), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))


def loss(model: nn.Module, x: mx.array, y: mx.array) -> mx.array:
    """Mean cross-entropy in nats per sample."""
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def optimizer(params: dict, lr: float) -> optim.Optimizer:
    """AdamW for matrices; vectors at twice the learning rate, without weight decay."""
    matrices = optim.AdamW(lr, weight_decay=0.1, bias_correction=True)
    vectors = optim.AdamW(2 * lr, weight_decay=0.0, bias_correction=True)
    return optim.MultiOptimizer([matrices, vectors], [lambda name, value: value.ndim > 1])


task = batchlab.task(
    model=model,
    loss=loss,
    train=points(16_384, seed=0),
    valid=points(4_096, seed=1),
    optimizer=optimizer,
)
