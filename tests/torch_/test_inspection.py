"""Inspection of a TorchTrainable for `batchlab check`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from batchlab.torch_.models import Decoder, next_token_loss


class Named(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class CentresTheBatch(nn.Module):
    """Mixes samples in its own forward, not in a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x):
        x = self.linear(x)
        return x - x.mean(0)


class Flattened(nn.Module):
    """Merges batch and time into one axis, as attention-free blocks often do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 5)
        self.second = nn.Linear(15, 1)

    def forward(self, x):
        h = self.first(x.reshape(-1, 2))
        return self.second(h.reshape(len(x), -1))


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(2, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        hidden, _ = self.rnn(x.reshape(len(x), 3, 2).transpose(0, 1))
        return self.out(hidden[-1])


@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (lambda: Named(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)), "net.1 (BatchNorm1d)"),
        (lambda: Named(nn.Linear(6, 4), CentresAfter(), nn.Linear(4, 1)), "net.1 (CentresAfter)"),
        (lambda: Named(CentresTheBatch(), nn.Linear(4, 1)), "net.0 (CentresTheBatch)"),
        (CentresTheBatch, "the model itself (CentresTheBatch)"),
        (lambda: Named(nn.Linear(6, 4), nn.LayerNorm(4), nn.Dropout(0.5), nn.Linear(4, 1)), None),
        (Flattened, None),
        (TimeFirst, None),
    ],
)
def test_mixing_layer(make, samples, model, culprit):
    trainable = make(model=model)
    trainable.init(0)
    before = trainable.state()
    assert trainable.mixing_layer(samples(8), 4) == culprit
    assert trainable.state() == before


class CentresAfter(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_convolutions_with_batch_norm(make):
    trainable = make(model=lambda: Named(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), loss=lambda m, x, y: m(x).mean())
    trainable.init(0)
    images = np.random.default_rng(0).standard_normal((8, 1, 6, 6)).astype(np.float32)
    assert trainable.mixing_layer((images, np.zeros(8)), 4) == "net.1 (BatchNorm2d)"


def test_a_decoder_does_not_mix(make):
    trainable = make(model=lambda: Decoder(17, 8, 16, 2, 2, 24, dropout=0.3), loss=next_token_loss)
    trainable.init(0)
    tokens = np.random.default_rng(0).integers(0, 17, (8, 9))
    assert trainable.mixing_layer((tokens[:, :-1], tokens[:, 1:]), 4) is None


def test_a_loss_that_mixes_is_no_layer(make, samples):
    trainable = make(loss=lambda m, x, y: torch.logsumexp((m(x) - y).abs(), 0).mean())
    trainable.init(0)
    assert trainable.mixing_layer(samples(8), 4) is None


def test_without_randomness_until_the_next_init(make, samples):
    trainable = make(model=lambda: nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 1)))
    x, y = samples(8)

    def gradient():
        trainable.accumulate((x, y), 1 / 8)
        found = trainable.gradients()["2.weight"]
        trainable.apply(0.0)
        return found

    trainable.init(0)
    assert not np.array_equal(gradient(), gradient())
    trainable.without_randomness()
    trainable.evaluate((x, y))
    assert np.array_equal(gradient(), gradient())
    trainable.init(0)
    assert not np.array_equal(gradient(), gradient())


def test_counts_and_losses(make, samples):
    x, y = samples(8)
    trainable = make(loss=lambda m, x, y: ((m(x) - y).square().sum(), len(y)))
    trainable.init(0)
    assert trainable.loss_count((x, y)) == 8.0
    assert trainable.raw_loss((x, y)) == pytest.approx(float(trainable.evaluate((x, y))[0]))
    plain = make()
    plain.init(0)
    assert plain.loss_count((x, y)) is None
    assert plain.raw_loss((x, y)) == pytest.approx(trainable.raw_loss((x, y)) / 8)


def test_parameters_are_copies_and_shared_ones_count_once(make, samples):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(6, 6, bias=False)
            self.two = nn.Linear(6, 6, bias=False)
            self.two.weight = self.one.weight
            self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

        def forward(self, x):
            return self.two(self.one(x)).mean(1, keepdim=True)

    trainable = make(model=Tied)
    trainable.init(0)
    assert trainable.parameter_count() == 36
    assert list(trainable.parameters()) == ["one.weight"]
    before = trainable.parameters()["one.weight"]
    kept = before.copy()
    trainable.accumulate(samples(8), 1 / 8)
    trainable.apply(0.1)
    assert np.array_equal(before, kept)
    assert not np.array_equal(trainable.parameters()["one.weight"], kept)
