"""A trace against what torch's allocator gives out, on three models of benchmarks/trace_accuracy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import batchlab
from batchlab.torch_.models import Decoder, next_token_loss

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "trace_accuracy"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the benchmark, so that the test measures what the benchmark reports."""
    names = ("measure", "workloads")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("measure")
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon ships from torch 2.9")
def test_a_trace_sees_every_optimizer(measure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Muon for matrices beside AdamW: the state of both, and what Muon's matrix products hold for a moment."""

    def muon_and_adamw(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
        matrices, others = ([p for p in model.parameters() if (p.ndim == 2) is wide] for wide in (True, False))
        return [torch.optim.Muon(matrices, lr=lr), torch.optim.AdamW(others, lr=0.1 * lr)]

    def tokens(size: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((size, 16), np.int64), np.ones((size, 16), np.int64)

    def model() -> nn.Module:
        return Decoder(256, 16, 64, 2, 2, 160)

    workload = measure.Workload("small", model, next_token_loss, (2,), tokens)
    task = batchlab.task(model=model, loss=next_token_loss, train=tokens(1), valid=tokens(1), optimizer=muon_and_adamw)
    monkeypatch.setattr(measure, "_task", lambda _: task)
    monkeypatch.setitem(measure.SETTINGS, "several", {"optimizer": "task"})
    found, traced = measure.measured(workload, "several", 2), measure.traced(workload, "several")[2]
    # The peak is within Muon's products in bf16, whose kernels allocate on their own.
    assert traced.training == pytest.approx(found.training, rel=0.05)
    assert traced.evaluation == pytest.approx(found.evaluation, rel=0.01)  # holds the state of both


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting", "tolerance"),
    [
        ("decoder", "bf16 autocast", 1e-4),
        ("GPT-2", "checkpointing", 5e-4),  # not traced: the random state stored by each checkpoint, 5 kB
        ("mixture of experts", "accumulation", 1e-4),
        # oneDNN allocates inside its kernels
        ("U-Net", "fp32", 0.06),
    ],
)
def test_a_trace_agrees_with_the_allocator(measure: ModuleType, name: str, setting: str, tolerance: float) -> None:
    workload = next(one for one in measure.WORKLOADS if one.name == name)
    traced = measure.traced(workload, setting)
    for size in workload.sizes[:2]:
        found = measure.measured(workload, setting, size)
        assert traced[size].training == pytest.approx(found.training, rel=tolerance)
        if tolerance < 0.01:
            assert traced[size].evaluation == pytest.approx(found.evaluation, rel=1e-3)
