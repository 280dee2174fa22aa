"""A run that goes on from its checkpoint needs memory for about one state, however large that is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from batchlab.storage.checkpoint import load_checkpoint, save_checkpoint
from batchlab.torch_.device import torch_device
from batchlab.torch_.memory import release, restart_peak

OUTPUTS = 1_000_000
STATE = 3 * 4 * 7 * OUTPUTS
"""Bytes of the parameters (six inputs and a bias) and of both moments of Adam."""


def model() -> nn.Module:
    return nn.Linear(6, OUTPUTS)


def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(x).mean(1, keepdim=True), y)


def held(field: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of resident memory can be reset on Linux only")
def test_saving_needs_no_copy_and_loading_about_one_state(make, samples, tmp_path: Path) -> None:
    cpu, path, batch = torch_device("cpu"), tmp_path / "state", samples(2)

    def one_step(trainable) -> float:
        trainable.accumulate(batch, 1.0 / trainable.count(batch))
        return float(trainable.apply(1e-3).loss)

    saved = make(model=model, loss=loss)
    saved.init(0)
    one_step(saved)
    release(cpu)
    before = held("VmRSS")
    restart_peak(cpu)
    save_checkpoint(path, {"step": 1}, saved.write_state)
    assert STATE <= path.stat().st_size <= 1.01 * STATE
    assert held("VmHWM") - before <= 0.5 * STATE, "one tensor at a time, which is a third of it"
    expected = one_step(saved)

    del saved
    release(cpu)
    before = held("VmRSS")
    restart_peak(cpu)
    loaded = make(model=model, loss=loss)
    loaded.init(1)
    found = load_checkpoint(path)
    assert found is not None
    loaded.read_state(found[1])
    assert held("VmHWM") - before <= 1.5 * STATE, "its parameters twice, its moments once"
    assert one_step(loaded) == expected
