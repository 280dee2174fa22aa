"""`batchlab calibrate` with torch on two processes over gloo, killed and begun again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.study.torch_plan import TASK

from batchlab.cli.app import run
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings

pytestmark = pytest.mark.slow


def test_a_killed_calibration_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    folder = tmp_path / "study"
    sizes = ("--batch-sizes", "4,8", "--set", "device.threads=1", "--device", "cpu")
    assert run(["throughput", str(tmp_path / "mine.py"), "--out", str(folder), *sizes]) == 0
    words = [sys.executable, "-m", "batchlab", "calibrate", str(folder), "--devices", "2", "--batch-size", "8"]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 240
    while not (found := [*folder.glob("runs/all-reduce-*/record.json")]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    [record] = found
    before = record.stat().st_mtime_ns

    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert record.stat().st_mtime_ns == before
    [calibration] = read_findings(Store.open(folder)).calibrations
    assert [worker.share for worker in calibration.workers] == [4, 4]  # a pass takes as long whatever its size
    assert calibration.gradient_bytes == 8 * (6 * 16 + 16 + 16 * 3 + 3) + 8 * (1 + 4)
    assert calibration.speedup < 1.2
