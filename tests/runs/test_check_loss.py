"""Faults of the loss function, planted in a small torch task: which item of the check finds each."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

PADDING = -100


# ---- loss


def test_nan_loss(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return sound.loss(model, x, y) + torch.log(-torch.ones(()))

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "loss").status == "fail"
    assert sound.finding(result, "loss").found == "not_finite"
    assert np.isnan(sound.finding(result, "loss").loss)
    assert sound.not_ok(result) == {"loss": "fail", "mean or sum": "note"}


def test_far_from_uniform_is_a_note(sound: Any) -> None:
    tokens = np.random.default_rng(0).integers(0, 50, size=(2, 3000))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(40 * model(x).transpose(1, 2), y)

    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))

    result = sound.check(sound.task(model=model, loss=loss, train=tokens[0], valid=tokens[1], sequence_length=16))
    assert sound.item(result, "loss").status == "note"
    assert sound.finding(result, "loss").found == "far_above_uniform"


def test_sum_loss(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="sum")

    result = sound.check(sound.task(loss=loss))
    assert sound.not_ok(result) == {"mean or sum": "fail", "splitting": "note"}
    assert sound.finding(result, "mean or sum").found == "sum_not_declared"
    assert sound.finding(result, "splitting").found == "reduction_unknown"
    assert result.sample_independent  # a wrong reduction is not a layer that mixes samples


def test_mean_declared_as_sum(sound: Any) -> None:
    result = sound.check(sound.task(reduction="sum"))
    assert sound.item(result, "mean or sum").status == "fail"
    assert sound.finding(result, "mean or sum").found == "mean_declared_as_sum"
    assert result.sample_independent


def test_mean_returned_with_a_count(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return sound.loss(model, x, y), len(y)

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "mean or sum").status == "fail"
    assert sound.finding(result, "mean or sum").found == "mean_with_count"


def padded(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of 1 to 12 targets, the rest padding."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 9, size=(64, 12))
    y = random.integers(0, 9, size=(64, 12))
    y[np.arange(12) >= random.integers(1, 13, size=(64, 1))] = PADDING
    return x, y


def tagger() -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))


def padded_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).transpose(1, 2), y, ignore_index=PADDING)


def real_targets(x: np.ndarray, y: np.ndarray) -> float:
    return float((y != PADDING).sum())


def test_mean_over_padded_targets_without_count(sound: Any) -> None:
    result = sound.check(sound.task(model=tagger, loss=padded_loss, train=padded(0), valid=padded(1)))
    assert sound.not_ok(result) == {"mean or sum": "fail", "splitting": "note"}
    assert sound.finding(result, "mean or sum").found == "mean_over_other_targets"
    assert result.sample_independent


def test_mean_over_padded_targets_with_count_is_sound(sound: Any) -> None:
    task = sound.task(model=tagger, loss=padded_loss, train=padded(0), valid=padded(1), count=real_targets)
    assert sound.not_ok(sound.check(task)) == {}


def test_own_count_differs_from_the_one_known_beforehand(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = F.cross_entropy(model(x).transpose(1, 2), y, ignore_index=PADDING, reduction="sum")
        return total, (y != PADDING).sum()

    task = sound.task(model=tagger, loss=loss, train=padded(0), valid=padded(1))
    result = sound.check(task)
    assert sound.not_ok(result) == {"mean or sum": "fail"}
    assert sound.finding(result, "mean or sum").found == "count_differs"
    told = sound.task(model=tagger, loss=loss, train=padded(0), valid=padded(1), count=real_targets)
    assert sound.not_ok(sound.check(told)) == {}


# ---- splitting


def test_batch_norm_is_named(sound: Any) -> None:
    result = sound.check(sound.task(model=lambda: sound.network(nn.BatchNorm1d(16))))
    assert sound.not_ok(result) == {"splitting": "note"}
    assert not result.sample_independent
    assert result.mixing_layer is not None
    assert "BatchNorm1d" in result.mixing_layer
    assert sound.finding(result, "splitting").layer == result.mixing_layer


def test_in_batch_negatives_name_the_loss_function(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        one, other = F.normalize(model(x)), F.normalize(model(x + 0.1))
        return F.cross_entropy(one @ other.T / 0.5, torch.arange(len(x)))

    result = sound.check(sound.task(loss=loss))
    assert sound.not_ok(result) == {"mean or sum": "note", "splitting": "note"}
    assert not result.sample_independent
    assert result.mixing_layer == "the loss function"
    assert sound.finding(result, "mean or sum").found == "neither"
    assert (sound.finding(result, "splitting").found, sound.finding(result, "splitting").layer) == ("mixes", None)


def test_declared_dependent_samples_are_respected(sound: Any) -> None:
    result = sound.check(sound.task(sample_independent=False))
    assert sound.not_ok(result) == {"splitting": "note"}
    assert sound.finding(result, "splitting").found == "declared_dependent"
    assert not result.sample_independent
    assert result.mixing_layer is None


class Noisy(nn.Module):
    """Noise in training only, that no dropout switch reaches."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * torch.randn_like(x) if self.training else x


def test_other_randomness_is_not_blamed_for_mixing(sound: Any) -> None:
    result = sound.check(sound.task(model=lambda: sound.network(Noisy())))
    assert sound.not_ok(result) == {}
    assert sound.finding(result, "splitting").found == "equal"
    assert result.sample_independent


def test_noise_drawn_in_the_loss_hides_neither_a_mean_nor_what_mixes_samples(sound: Any) -> None:
    def noisy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        kept = (torch.rand(len(x), 1) < 0.9).float()
        return sound.loss(model, kept * x + 0.3 * torch.randn_like(x), y)

    def compared(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        z = model(x + 0.3 * torch.randn_like(x))
        return sound.loss(model, x, y) + (z @ z.T).square().mean()

    result = sound.check(sound.task(loss=noisy))
    assert (sound.finding(result, "mean or sum").found, sound.finding(result, "splitting").found) == ("mean", "equal")
    assert sound.item(result, "evaluation").status == "note"
    assert result.passed
    result = sound.check(sound.task(loss=compared))
    assert sound.finding(result, "splitting").found == "mixes"
    assert not result.sample_independent


def test_what_differs_in_every_pass_cannot_be_tested(sound: Any) -> None:
    scales = (1.0 + 0.1 * (number % 7) for number in range(10**6))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return sound.loss(model, x, y) * next(scales)

    result = sound.check(sound.task(loss=loss), scope="memory")
    assert sound.finding(result, "splitting").found == "not_repeatable"
    assert [item.name for item in result.items] == ["splitting"]
    assert result.passed
    assert result.sample_independent
