"""What one training step asks of the card: nothing waits for it, and launches, copies and allocations have a budget."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.cuda import tasks
from tests.cuda.card import Card

from batchlab.core.protocols import Batch
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.runs.evaluation import evaluate
from batchlab.runs.step import stats_on_host
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.trainable import TorchTrainable

MICRO_BATCHES = 3
LAYERS = 2


def tokens(size: int) -> Batch:
    ids = np.random.default_rng(0).integers(0, 1000, (size, 65))
    return ids[:, :-1], ids[:, 1:]


@pytest.fixture
def trained(card: Card) -> Iterator[TorchTrainable]:
    """A decoder that has done two steps, so that optimizer states and caches exist."""
    framework, device = TorchFramework(), DeviceSettings(name="cuda")
    framework.start(device, 0)
    trainable = framework.trainable(tasks.decoder(LAYERS), device, OptimizerSettings())
    trainable.init(0)
    for _ in range(2):
        step(trainable)
    card.reset()
    yield trainable
    torch.cuda.set_sync_debug_mode("default")


def step(trainable: TorchTrainable) -> None:
    for _ in range(MICRO_BATCHES):
        batch = tokens(4)
        trainable.accumulate(batch, 1.0 / (MICRO_BATCHES * trainable.count(batch)))
    trainable.apply(1e-3)


def test_nothing_in_a_step_waits_for_the_card(card: Card, trained: TorchTrainable) -> None:
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(5):
        step(trained)
    torch.cuda.set_sync_debug_mode("default")
    assert card.count("synchronizations") == card.count("stream_synchronizations") == 0
    assert card.count("copies_to_host") == 0


def test_budgets_of_a_step(card: Card, trained: TorchTrainable) -> None:
    step(trained)
    assert card.count("copies_to_device") == 2 * MICRO_BATCHES  # inputs and targets
    assert card.count("pageable_copies") == 0
    assert card.count("allocations") == card.count("host_allocations") == 0  # both caches serve every step
    # per layer and micro-batch about 40 forward and backward; the optimizer and clipping are a few launches in all
    assert 50 * MICRO_BATCHES < card.count("launches") < 130 * MICRO_BATCHES


def test_a_row_of_metrics_is_one_transfer(card: Card, trained: TorchTrainable) -> None:
    pending = []
    for _ in range(10):
        for _ in range(MICRO_BATCHES):
            batch = tokens(4)
            trained.accumulate(batch, 1.0 / (MICRO_BATCHES * trained.count(batch)))
        pending.append(trained.apply(1e-3))
    card.reset()
    assert len(stats_on_host(trained, pending)) == 10
    assert card.count("copies_to_host") == 1
    card.reset()
    evaluate(trained, [tokens(2)] * 5)
    assert card.count("copies_to_host") == 1


def test_nothing_waits_in_fp16_either(card: Card) -> None:
    """The fused optimizer is told on the card whether gradients overflowed."""
    framework, device = TorchFramework(), DeviceSettings(name="cuda", precision="fp16")
    framework.start(device, 0)
    trainable = framework.trainable(tasks.decoder(LAYERS), device, OptimizerSettings())
    trainable.init(0)
    for _ in range(2):
        step(trainable)
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(3):
        step(trainable)
    torch.cuda.set_sync_debug_mode("default")
    assert trainable.state()


def test_images_of_bytes_cross_as_bytes(card: Card) -> None:
    framework, device = TorchFramework(), DeviceSettings(name="cuda")
    framework.start(device, 0)
    trainable = framework.trainable(tasks.pictures(), device, OptimizerSettings())
    trainable.init(0)
    images, labels = np.zeros((8, 3, 32, 32), np.uint8), np.arange(8)
    trainable.accumulate((images, labels), 1.0)
    card.reset()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    trainable._tensor(np.zeros((1024, 3, 32, 32), np.uint8))
    assert card.count("bytes_to_device") == torch.cuda.max_memory_allocated() - before == 1024 * 3 * 32 * 32
