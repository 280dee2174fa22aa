"""kill -9 at random moments, then the same command again: outcomes.csv is equal to the last bit."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.injections import injection

from batchlab.storage.metrics import read_rows

pytestmark = pytest.mark.slow

Start = Callable[[Path], "subprocess.Popen[str]"]
Finish = Callable[["subprocess.Popen[str]"], str]
WorkersOf = Callable[[Path], list[psutil.Process]]

FEW = pytest.param(3, id="few")
TWENTY = pytest.param(20, id="twenty", marks=pytest.mark.chaos)


def require_intact(folder: Path, undisturbed: bytes, workers_of: WorkersOf) -> None:
    """Everything on disk is whole, and nothing is left running."""
    assert (folder / "outcomes.csv").read_bytes() == undisturbed
    for metrics in folder.glob("runs/train-*/metrics.jsonl"):
        rows, unreadable = read_rows(metrics)
        assert unreadable == 0, metrics
        trained = [row.step for row in rows if row.train_loss is not None]
        assert trained == sorted(set(trained)), metrics
    assert not list(folder.rglob("*.batchlab-tmp"))
    assert not list(folder.glob("runs/*/checkpoint"))
    deadline = time.monotonic() + 30
    while left := workers_of(folder):
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.05)


@pytest.mark.parametrize("kills", [FEW, TWENTY])
def test_the_study_is_killed(
    tmp_path: Path,
    start: Start,
    finish: Finish,
    undisturbed: bytes,
    workers_of: WorkersOf,
    kills: int,
    record_property: Callable[[str, Any], None],
) -> None:
    record_property("injection", injection("real processes: kill -9 of the study", kills))
    seed = random.SystemRandom().randrange(10**6)
    print(f"random seed {seed}")
    dice = random.Random(seed)
    remaining, number = kills, 0
    while remaining:
        folder = tmp_path / f"study{number}"
        number += 1
        begun = time.monotonic()
        process = start(folder)
        while remaining:
            time.sleep(dice.uniform(0.1, 3.0))
            if process.poll() is not None:
                break  # this study is finished: the remaining kills go to another one
            process.kill()
            process.communicate()
            remaining -= 1
            process = start(folder)
        finish(process)
        print(f"study {number}: {kills - remaining} kills so far, {time.monotonic() - begun:.0f} s")
        require_intact(folder, undisturbed, workers_of)


@pytest.mark.parametrize("kills", [FEW, TWENTY])
def test_workers_are_killed(
    tmp_path: Path,
    start: Start,
    finish: Finish,
    undisturbed: bytes,
    workers_of: WorkersOf,
    kills: int,
    record_property: Callable[[str, Any], None],
) -> None:
    record_property("injection", injection("real processes: kill -9 of a worker", kills))
    seed = random.SystemRandom().randrange(10**6)
    print(f"random seed {seed}")
    dice = random.Random(seed)
    remaining, number = kills, 0
    while remaining:
        folder = tmp_path / f"study{number}"
        number += 1
        process = start(folder)
        while remaining and process.poll() is None:
            time.sleep(dice.uniform(0.05, 2.0))
            workers = workers_of(folder)
            if workers:
                dice.choice(workers).kill()
                remaining -= 1
        said, _ = process.communicate(timeout=600)
        if process.returncode != 0:  # one run lost its worker four times
            assert process.returncode == 1, said
            assert "run the same command again" in said
            assert "Traceback" not in said
        finish(start(folder))
        require_intact(folder, undisturbed, workers_of)
