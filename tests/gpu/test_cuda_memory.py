"""What only a CUDA device can show: its allocator's counters and limits, and how near the trace comes to them.

All but those marked `numerics` also run on the stand-in for CUDA (`make test-cuda`). Nobody has seen them on a card.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab
from batchlab.core.experiment import TaskReference
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import Batch
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.core.task import Task
from batchlab.testing import check_trainable
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.models import Decoder, next_token_loss

pytestmark = pytest.mark.gpu

DEVICE = DeviceSettings(name="cuda:0")
SEGMENT = 20 * 2**20
"""What the allocator reserves at once for tensors of 1 to 10 MiB: the least by which two orders of them differ."""


def decoder() -> Task:
    ids = np.arange(65 * 512) % 1000
    return batchlab.task(
        model=lambda: Decoder(1000, 64, 128, 2, 4, 344), loss=next_token_loss, train=ids, valid=ids, sequence_length=64
    )


def convolutions() -> Task:
    def network() -> nn.Module:
        layers: list[nn.Module] = []
        for width in (3, 32, 32):
            layers += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

    images = np.zeros((8, 3, 32, 32), np.float32), np.arange(8)
    return batchlab.task(model=network, loss=lambda m, x, y: cross_entropy(m(x), y), train=images, valid=images)


def tokens(size: int) -> Batch:
    ids = np.random.default_rng(0).integers(0, 1000, (size, 65))
    return ids[:, :-1], ids[:, 1:]


def pictures(size: int) -> Batch:
    random = np.random.default_rng(0)
    return random.standard_normal((size, 3, 32, 32), np.float32), random.integers(0, 10, size)


def peaks(task: Task, batch: Batch) -> tuple[int, int]:
    """(allocated, reserved) of two whole steps and an evaluation."""
    framework = TorchFramework()
    framework.start(DEVICE, 0)
    trainable = framework.trainable(task, DEVICE, OptimizerSettings())
    trainable.init(0)
    for _ in range(2):
        trainable.accumulate(batch, 1.0 / trainable.count(batch))
        trainable.apply(1e-3)
    trainable.evaluate(batch)
    memory = trainable.memory()
    assert memory.peak_in_use_bytes is not None
    assert memory.peak_bytes is not None
    return memory.peak_in_use_bytes, memory.peak_bytes


@pytest.mark.numerics
def test_the_trainable_keeps_every_promise_on_cuda() -> None:
    task = batchlab.task(
        model=lambda: nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.1), nn.Tanh(), nn.Linear(32, 1)),
        loss=lambda model, x, y: (model(x) - y).square().mean(),
        train=np.zeros(9),
        valid=np.zeros(9),
    )
    random = np.random.default_rng(0)
    batch = random.standard_normal((8, 6), np.float32), random.standard_normal((8, 1), np.float32)
    framework = TorchFramework()
    framework.start(DEVICE, 0)
    check_trainable(lambda: framework.trainable(task, DEVICE, OptimizerSettings()), batch)


@pytest.mark.parametrize(("task", "draw"), [(decoder, tokens), (convolutions, pictures)])
@pytest.mark.parametrize("size", [32, 128])
def test_the_trace_is_near_the_allocators_counters(
    task: Callable[[], Task], draw: Callable[[int], Batch], size: int
) -> None:
    peaks(task(), draw(2))  # cuBLAS takes its workspace at first use, and keeps it; a trace does not count it
    torch.cuda.empty_cache()
    workspace = torch.cuda.memory_allocated()
    allocated, reserved = peaks(task(), draw(size))
    spec = TraceSpec(
        workload=Workload(task=TaskReference(kind="file", target="here")),
        micro_batch_sizes=(size,),
        grad_accum_steps=1,
        device=DEVICE,
    )
    point = TorchFramework().trace(task(), spec, draw(1), draw(1)).points[0]
    assert point.reserved_bytes is not None
    assert abs(point.peak.total_bytes / (allocated - workspace) - 1) < 0.10
    assert abs(point.reserved_bytes - reserved) <= max(0.15 * reserved, SEGMENT)


def test_a_real_failed_allocation_is_recognised(cuda: torch.device) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device=cuda)
    failure = as_out_of_memory(caught.value)
    assert failure is not None
    assert "out of memory" in str(failure)


@pytest.mark.filterwarnings("ignore:.*ran out of memory at batch size")
def test_the_decorator_gives_back_what_a_failed_attempt_took(cuda: torch.device) -> None:
    reserved: list[int] = []

    @batchlab.find_executable_batch_size(starting_batch_size=2**21, reduce_batch_size_fn=lambda: 1)
    def attempt(batch_size: int) -> int:
        reserved.append(torch.cuda.memory_reserved(cuda))
        first = torch.empty(64 * 2**20, dtype=torch.uint8, device=cuda)
        second = torch.empty((batch_size, 2**30), dtype=torch.uint8, device=cuda)
        return first.numel() + second.shape[0]

    assert attempt() == 64 * 2**20 + 1
    assert reserved[1] <= reserved[0]


@pytest.mark.slow
@pytest.mark.numerics  # the check of the task needs gradients
def test_capacity_under_a_limit_is_proved(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np, torch, batchlab\n"
        "x = np.random.default_rng(0).standard_normal((4096, 256)).astype(np.float32)\n"
        "task = batchlab.task(\n"
        "    model=lambda: torch.nn.Sequential(*(m for _ in range(8) for m in (torch.nn.Linear(256, 256),"
        " torch.nn.Tanh()))),\n"
        "    loss=lambda model, x, y: (model(x) - y).square().mean(),\n"
        "    train=(x[:3900], x[:3900]), valid=(x[3900:], x[3900:]),\n"
        ")\n"
    )
    study = tmp_path / "study"
    command = [sys.executable, "-m", "batchlab", "capacity", str(tmp_path / "mine.py"), "--out", str(study), "--prove"]
    command += ["--memory-limit", "64MiB", "--headroom", "0", "--set", "device.name=cuda"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    decided: dict[str, Any] = json.loads((study / "decisions.json").read_text())["capacity"]
    assert decided["smallest_failed"] == decided["max_micro_batch_size"] + 1
