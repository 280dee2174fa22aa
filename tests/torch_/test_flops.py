"""Operations of a model with a known count, and a peak that no product exceeds."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from batchlab.torch_.flops import LARGEST, SMALLEST, measured_peak
from batchlab.torch_.inspection import InspectableTorchTrainable


def test_a_training_step_has_three_times_the_operations_of_a_forward_pass(
    make: Callable[..., InspectableTorchTrainable],
) -> None:
    trainable = make()
    trainable.init(0)
    before = trainable.state()
    x = np.zeros((5, 6), np.float32)
    assert trainable.training_flops((x, x[:, :1])) == 3 * 5 * 2 * (6 * 16 + 16 * 1)
    assert trainable.state() == before


def test_products_grow_until_one_takes_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of 1e12 operations per second, which takes 1 ms to start a product."""
    sizes: list[int] = []
    clock = [0.0]

    def product(one: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        sizes.append(len(one))
        clock[0] += 1e-3 + 2 * len(one) ** 3 / 1e12
        return out

    monkeypatch.setattr(torch, "randn", lambda *shape, device: torch.empty(shape[0], 1).expand(*shape))
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda one, other: one)
    monkeypatch.setattr(torch, "mm", product)
    peak = measured_peak(torch.device("cpu"), "fp32", lambda: clock[0])
    assert sizes[0] == SMALLEST
    assert sizes[-1] < LARGEST
    assert peak is not None
    assert peak == pytest.approx(1e12, rel=0.1)
    assert peak < 1e12


def test_the_peak_of_this_processor() -> None:
    peak = measured_peak(torch.device("cpu"), "fp32", time.perf_counter)
    assert peak is not None
    assert 1e8 < peak < 1e15


def test_a_device_where_nothing_fits_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "randn", full)
    assert measured_peak(torch.device("cpu"), "fp32", time.perf_counter) is None
