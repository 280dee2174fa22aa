"""`batchlab.observe` in a data-parallel script: the noise scale of all processes together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("observed_program.py")


@pytest.mark.slow
def test_two_processes_measure_what_one_with_all_micro_batches_does() -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM))
    ended = subprocess.run(torchrun, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("agreed") == 2  # on the numbers, and on what a sharded model is told
