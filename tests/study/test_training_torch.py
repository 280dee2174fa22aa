"""`batchlab train PLAN` with torch on two processes, stopped and begun again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.study.torch_plan import write_plan

from batchlab.study.training import read_plan

pytestmark = pytest.mark.slow


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path)


def command(plan: Path, out: str) -> list[str]:
    return ["-m", "batchlab", "train", str(plan), "--out", str(plan.parent / out), "--json"]


def test_a_stopped_run_goes_on_and_its_weights_are_written(plan: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    stopped = subprocess.Popen([sys.executable, *command(plan, "run")], env=environment, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list(plan.parent.glob("run/runs/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(120) == 130
    assert list(plan.parent.glob("run/runs/*/checkpoint/state"))

    words = [sys.executable, *command(plan, "run")]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)["record"]["result"]
    assert (result["resumed"], result["steps"]) == (1, 300)
    from safetensors.torch import load_file

    weights = load_file(plan.parent / "run" / "weights.safetensors")
    assert set(weights) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_torchrun_starts_the_ranks_of_a_plan(plan: Path) -> None:
    """By the plan's own line, it is the run that batchlab starts by itself."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    name, *words = shlex.split(read_plan(plan).distributed_config.launch["torchrun"])
    assert name == "torchrun"
    torchrun = (sys.executable, "-m", "torch.distributed.run")
    for start in ([*torchrun, *words, "--out", "launched"], [sys.executable, *command(plan, "alone")]):
        ended = subprocess.run(
            start, cwd=plan.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == 0, ended.stderr
    launched, alone = (losses(plan.parent / name) for name in ("launched", "alone"))
    assert len(launched) == 1
    assert launched == alone


def losses(folder: Path) -> list[float]:
    """The validation losses of the runs in a folder."""
    return [json.loads(path.read_text())["result"]["val_loss"] for path in folder.glob("runs/*/record.json")]
