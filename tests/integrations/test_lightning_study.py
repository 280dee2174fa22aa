"""A whole study in Lightning's Trainer, killed and continued. Only in `make test-integrations`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.integrations.doors import TRAINERS

pytestmark = pytest.mark.integration
pytest.importorskip("lightning")

SETTINGS = (
    *("--batch-sizes", "8,16", "--search", "grid", "--learning-rates", "3e-3,1e-2", "--seeds", "2"),
    *("--set", "sweep.max_extensions=0", "--set", "sweep.confirm=0", "--token-budget", "1600"),
    *("--set", "device.workers=1", "--set", "device.threads=1"),
)


def start(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "batchlab", "study", f"{TRAINERS / 'lit.py'}:make", "--out", str(folder), *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return said


def wait_for_training(process: subprocess.Popen[str], folder: Path) -> None:
    limit = time.monotonic() + 600
    while not list(folder.glob("runs/train-*/metrics.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_killed_study_ends_with_the_same_outcomes_and_a_report(tmp_path: Path) -> None:
    said = finish(start(tmp_path / "whole"))
    assert "TRAIN WITH" in said
    expected = (tmp_path / "whole" / "outcomes.csv").read_bytes()
    assert expected.count(b",completed\n") >= 5
    folder = tmp_path / "killed"
    process = start(folder)
    wait_for_training(process, folder)
    process.kill()
    process.communicate()
    process = start(folder)
    time.sleep(random.uniform(1.0, 5.0))
    workers = [one for one in psutil.Process(process.pid).children(recursive=True) if one.is_running()]
    if workers:
        random.choice(workers).kill()
    said, _ = process.communicate(timeout=900)
    if process.returncode != 0:
        assert "run the same command again" in said
        finish(start(folder))
    assert (folder / "outcomes.csv").read_bytes() == expected
    assert (folder / "report.html").is_file()
