"""A real task that keeps tensors: forked probes do not see what earlier ones kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from batchlab.core.experiment import TaskReference
from batchlab.core.record import CapacityResult, Record
from batchlab.core.spec import CapacitySpec, DeviceSettings, Workload
from batchlab.engines.local import LocalEngine

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")]

MIB = 2**20

TASK = """
import numpy as np
import torch

import batchlab

kept = []
x = np.zeros((64, 16), dtype=np.float32)


def loss(model, x, y):
    kept.append(torch.ones(2 * 2**20))  # 8 MiB
    return torch.nn.functional.mse_loss(model(x), y)


task = batchlab.task(
    model=lambda: torch.nn.Linear(16, 1), loss=loss, train=(x[:48], x[:48, :1]), valid=(x[48:], x[48:, :1])
)
"""


def test_tensors_in_a_global_end_with_their_probe(tmp_path: Path, carry_out: Callable[..., list[Record]]) -> None:
    (tmp_path / "mine.py").write_text(TASK)

    def probe(steps: int, evaluated: int) -> CapacitySpec:
        return CapacitySpec(
            workload=Workload(task=TaskReference(kind="file", target=str(tmp_path / "mine.py"))),
            micro_batch_size=4,
            grad_accum_steps=1,
            steps=steps,
            evaluation_batch_size=evaluated,
            device=DeviceSettings(memory_limit=2**30),
        )

    with closing(LocalEngine(tmp_path / "study", 1)) as engine:
        records = carry_out(engine, probe(2, 4), probe(12, 4), probe(2, 5), exclusive=True)
    assert [record.process for record in records] == ["forked"] * 3
    results = [record.result for record in records if isinstance(record.result, CapacityResult)]
    (before, held), (leaked, _), (after, held_after) = [(r.peak_bytes or 0, r.baseline_bytes or 0) for r in results]
    assert leaked - before > 60 * MIB, "the task does keep its tensors"
    assert abs(after - before) < 8 * MIB
    assert abs(held_after - held) < 8 * MIB
