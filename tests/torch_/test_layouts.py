"""One optimizer step is the same step however its global batch is split."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from batchlab.torch_.models import Decoder, next_token_loss

STEPS = 50
LAYOUTS = ((64,), (16,) * 4, (16, 48))


def run(make, layout, dtype, precision_model):
    trainable = make(model=precision_model, loss=next_token_loss, task={"sequence_length": 8})
    trainable.init(0)
    tokens = np.random.default_rng(0).integers(0, 17, (64 * STEPS, 9))
    losses = []
    for index in range(STEPS):
        batch = tokens[64 * index : 64 * (index + 1)]
        pieces = [(piece[:, :-1], piece[:, 1:]) for piece in np.split(batch, np.cumsum(layout)[:-1])]
        weight = 1.0 / sum(trainable.count(piece) for piece in pieces)
        for piece in pieces:
            trainable.accumulate(piece, weight)
        losses.append(float(trainable.apply(3e-3).loss))
    return np.array(losses), trainable.parameters()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_layouts_agree(make, dtype, tolerance):
    def model() -> nn.Module:
        torch.set_default_dtype(dtype)
        return Decoder(17, 8, 16, 1, 2, 24)

    reference, weights = run(make, LAYOUTS[0], dtype, model)
    assert reference[-1] < reference[0]
    for layout in LAYOUTS[1:]:
        losses, other = run(make, layout, dtype, model)
        np.testing.assert_allclose(losses, reference, rtol=tolerance)
        if dtype is torch.float64:
            for name, value in weights.items():
                np.testing.assert_allclose(other[name], value, rtol=0, atol=tolerance * np.abs(value).max())


def test_unequal_counts_weigh_by_targets_not_by_micro_batches(make):
    """Masked targets: the gradient of the parts is that of the whole, which a mean of means is not."""

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-1)

    random = np.random.default_rng(1)
    x, y = random.integers(0, 17, (8, 8)), random.integers(0, 17, (8, 8))
    y[:4, 1:] = -1
    trainable = make(
        model=lambda: Decoder(17, 8, 16, 1, 2, 24),
        loss=loss,
        task={"sequence_length": 8, "count": lambda x, y: (y >= 0).sum()},
    )
    gradients = []
    for pieces in ([(x, y)], [(x[:4], y[:4]), (x[4:], y[4:])]):
        trainable.init(0)
        weight = 1.0 / sum(trainable.count(piece) for piece in pieces)
        for piece in pieces:
            trainable.accumulate(piece, weight)
        gradients.append(trainable.gradients())
    for name, value in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], value, atol=1e-6)
    assert trainable.count((x, y)) == 36
