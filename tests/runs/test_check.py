"""`batchlab check` as a whole: sound tasks, errors of the person's code, and the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchlab.core.check import TooLarge
from batchlab.core.spec import DeviceSettings

LINES = [
    "loss",
    "mean or sum",
    "splitting",
    "seeds",
    "learning rate",
    "evaluation",
    "gradients",
    "held-out data",
    "data size",
]


# ---- sound tasks


def test_sound_task_has_only_ticks(sound: Any) -> None:
    result = sound.check(sound.task())

    assert [item.name for item in result.items] == LINES
    assert sound.not_ok(result) == {}
    assert result.passed
    assert result.sample_independent
    assert result.mixing_layer is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_is_not_blamed(dtype: torch.dtype, sound: Any) -> None:
    def model() -> nn.Module:
        return sound.network(nn.Dropout(0.3)).to(dtype)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return sound.loss(model, x.to(dtype), y)

    assert sound.not_ok(sound.check(sound.task(model=model, loss=loss))) == {}


def test_bfloat16_rounding_is_not_blamed(sound: Any) -> None:
    device = DeviceSettings(precision="bf16")
    assert sound.not_ok(sound.check(sound.task(), device=device, precision="bf16")) == {}


def test_sum_with_count_is_sound(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return F.cross_entropy(model(x), y, reduction="sum"), len(y)

    result = sound.check(sound.task(loss=loss))
    assert sound.not_ok(result) == {}
    assert sound.finding(result, "mean or sum").found == "sum_with_count"
    assert sound.finding(result, "mean or sum").own_count == 8


def test_declared_sum_is_sound(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="sum")

    assert sound.not_ok(sound.check(sound.task(loss=loss, reduction="sum"))) == {}


def test_tokens_start_near_the_uniform_loss(sound: Any) -> None:
    tokens = np.random.default_rng(0).integers(0, 50, size=(2, 3000))
    tokens[:, 0] = 49

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x).transpose(1, 2), y)

    def model() -> nn.Module:
        return nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))

    result = sound.check(sound.task(model=model, loss=loss, train=tokens[0], valid=tokens[1], sequence_length=16))
    assert sound.not_ok(result) == {}
    assert sound.finding(result, "loss").vocabulary == 50
    assert sound.finding(result, "loss").loss == pytest.approx(np.log(50), rel=0.2)


# ---- errors


def test_loss_that_is_not_one_number_is_reported_without_its_type(sound: Any) -> None:
    result = sound.check(sound.task(loss=lambda model, x, y: F.cross_entropy(model(x), y, reduction="none")))
    assert sound.item(result, "loss").status == "fail"
    assert sound.finding(result, "loss").message.startswith("loss(model, …) returned a tensor of shape (8,)")


def test_crash_in_the_loss_is_reported_once_with_its_line(sound: Any) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        raise KeyError("no such target")

    result = sound.check(sound.task(loss=loss))
    assert sound.item(result, "loss").status == "fail"
    assert sound.finding(result, "loss").message.startswith("KeyError: 'no such target' (line ")
    assert "test_check.py" in sound.finding(result, "loss").message
    assert sound.finding(result, "loss").same_as is None
    assert sound.finding(result, "gradients").same_as == "loss"
    assert [sound.item(result, name).status for name in ("held-out data", "data size")] == ["ok", "ok"]


# ---- data


def test_held_out_data_from_the_training_data(sound: Any) -> None:
    x, y = sound.vectors(0)
    result = sound.check(sound.task(valid=(x[:32], y[:32])))
    assert sound.not_ok(result) == {"held-out data": "fail"}
    assert (sound.finding(result, "held-out data").found, sound.finding(result, "held-out data").share) == (
        "leaked",
        1.0,
    )


def test_a_little_overlap_is_a_note(sound: Any) -> None:
    x, y = sound.vectors(1, 50)
    x[:2] = sound.vectors(0)[0][:2]
    result = sound.check(sound.task(valid=(x, y)))
    assert sound.not_ok(result) == {"held-out data": "note"}


def test_less_data_than_the_largest_batch_is_a_note(sound: Any) -> None:
    assert sound.not_ok(sound.check(sound.task(), largest_batch=64)) == {}
    result = sound.check(sound.task(), largest_batch=65)
    assert sound.not_ok(result) == {"data size": "note"}


def test_single_training_sample_is_refused_without_running_anything(sound: Any) -> None:
    def model() -> nn.Module:
        raise AssertionError("not reached")

    result = sound.check(sound.task(model=model, train=sound.vectors(0, 1)))
    assert sound.not_ok(result) == {"data size": "fail"}


# ---- little memory


def needs_memory(sound: Any, most: int, evaluated: int = 8) -> Any:
    """A loss that runs out of memory with more samples than `most`, or in evaluation with more than `evaluated`."""

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if len(x) > (most if model.training else evaluated):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return sound.loss(model, x, y)

    return loss


def test_a_device_that_holds_one_sample_can_still_be_asked_for_its_capacity(sound: Any) -> None:
    result = sound.check(sound.task(loss=needs_memory(sound, 1)))
    assert sound.not_ok(result) == {"loss": "note"}
    assert sound.finding(result, "loss") == TooLarge(samples=2)
    assert result.passed
    assert result.sample_independent


def test_an_item_that_needs_more_memory_than_the_others_is_not_tested(sound: Any) -> None:
    result = sound.check(sound.task(loss=needs_memory(sound, 4, evaluated=2)))
    assert sound.finding(result, "evaluation") == TooLarge(samples=4)
    assert sound.item(result, "gradients").status == "ok"
    assert result.passed
