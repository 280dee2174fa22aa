"""Enforced limits and resettable peaks, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from batchlab.torch_.memory import cuda_fraction, mps_fraction

LIMIT = 64 * 2**20

LIMITED = f"""
    import json
    import numpy as np, torch
    from torch import nn
    import batchlab
    from batchlab.core.protocols import OutOfMemory
    from batchlab.core.spec import DeviceSettings, OptimizerSettings
    from batchlab.torch_.framework import TorchFramework

    task = batchlab.task(
        model=lambda: nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 64)),
        loss=lambda m, x, y: (m(x) - y).square().mean(), train=np.zeros(9), valid=np.zeros(9),
    )
    framework, device = TorchFramework(), DeviceSettings(memory_limit={LIMIT}, threads=1)

    def attempt(size):
        batch = (np.zeros((size, 64), np.float32), np.ones((size, 64), np.float32))
        framework.start(device, 0)
        trainable = framework.trainable(task, device, OptimizerSettings())
        trainable.init(0)
        for _ in range(2):
            trainable.accumulate(batch, 1.0 / size)
            trainable.apply(1e-6)
        return trainable.memory().peak_in_use_bytes

    attempt(2)
    baseline = framework.bound_memory(device).baseline_bytes
    small, middle = attempt(8), attempt(2048)
    again = attempt(8)
    try:
        attempt(65536)
        text = None
    except OutOfMemory as error:
        text = str(error)
    after = attempt(8)
    print(json.dumps(dict(baseline=baseline, small=small, middle=middle, again=again, text=text, after=after)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA bounds memory on Linux only")
def test_the_limit_on_a_cpu_is_an_allocation_that_fails():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["baseline"] > 2**20
    assert seen["text"] is not None
    assert "allocate" in seen["text"]
    # a pass over 2048 samples keeps two 2048 × 1024 float32 activations (8 MiB each) and makes their gradients
    assert 2 * 8 * 2**20 < seen["middle"] <= LIMIT
    assert max(seen["small"], seen["again"]) < 2 * 8 * 2**20  # the peak belongs to its own run, not to the larger one


@pytest.mark.parametrize("total", [85_520_809_984, 25_438_126_080, 6_442_450_944 + 65_536])
def test_a_limit_in_whole_segments_loses_no_byte_on_cuda(total: int) -> None:
    for limit in range(2 * 2**20, total, 997 * 2**20):
        assert limit <= int(cuda_fraction(limit, total) * total) <= limit + 16
    assert cuda_fraction(2 * total, total) == 1.0


def test_a_limit_above_what_metal_accepts_is_its_largest() -> None:
    assert mps_fraction(3 * 2**30, 2**30) == 2.0
    assert mps_fraction(2**29, 2**30) == 0.5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_limit_on_cuda_is_the_allocators():
    program = LIMITED.replace("DeviceSettings(", "DeviceSettings(name='cuda:0', ")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "out of memory" in seen["text"]
    assert seen["middle"] > 2 * 8 * 2**20
    assert seen["again"] == seen["small"]
