"""Capacity of tasks that fail: a clear answer, an exit code, and nothing left running or lying about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

TASK = """
import os
import subprocess
import sys
import time

import numpy as np
import torch

import batchlab

x = np.random.default_rng(0).normal(size=(400, 64)).astype(np.float32)
y = 2 * x[:, :1]


def loss(model, x, y):
    {body}
    return torch.nn.functional.mse_loss(model(x), y)


task = batchlab.task(
    model=lambda: torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)),
    loss=loss,
    train=(x[:300], y[:300]),
    valid=(x[300:], y[300:]),
)
"""


@dataclass
class RunResult:
    code: int
    out: str
    err: str


def end_of(tmp_path: Path, body: str, *arguments: str, script: str = "") -> RunResult:
    """`batchlab capacity mine.py`, or mine.py itself where it ends with a script; fails where something stays."""
    (tmp_path / "mine.py").write_text(TASK.format(body=body) + script)
    scratch, mark = tmp_path / "scratch", uuid.uuid4().hex
    scratch.mkdir()
    command = ["mine.py"] if script else ["-m", "batchlab", "capacity", "mine.py", "--out", "study", *arguments]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch), "BATCHLAB_TEST_MARK": mark},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    deadline = time.monotonic() + 10
    while left := [process for process in psutil.process_iter() if _mark(process) == mark]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.1)
    assert [path for path in scratch.iterdir() if not path.name.startswith("torchinductor_")] == []  # torch keeps that
    assert list(tmp_path.rglob("*.batchlab-tmp")) == []
    assert "Traceback" not in done.stdout + done.stderr
    return RunResult(done.returncode, done.stdout, done.stderr)


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("BATCHLAB_TEST_MARK")
    except psutil.Error:
        return None


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    ended = end_of(tmp_path, "return model(x).sum() * float('nan')", "--memory-limit", "64MiB")
    assert ended.code == 0  # sizes do not depend on it
    assert "loss         not finite" in ended.out


def test_an_exception_from_some_size_on(tmp_path: Path) -> None:
    body = "assert len(x) <= 40, 'more than 40 rows at once'"
    ended = end_of(tmp_path, body, "--memory-limit", "64MiB", "--json")
    found = json.loads(ended.out)
    assert (ended.code, found["status"], found["max_micro_batch_size"]) == (1, "none", None)
    assert found["failure"] == (
        "The task failed while its memory was measured: AssertionError: more than 40 rows at once (line 17 of mine.py)"
    )


def test_a_process_that_dies(tmp_path: Path) -> None:
    ended = end_of(tmp_path, "os.abort()")
    assert ended.code == 1
    said = "Its process ended by SIGABRT, 2 times. Fatal Python error: Aborted (line 17 of mine.py)."
    assert said in ended.out


def test_a_task_that_hangs(tmp_path: Path) -> None:
    ended = end_of(tmp_path, "time.sleep(7777)", "--set", "device.silence_seconds=20")
    assert ended.code == 1
    assert "gave no sign of life for 20 seconds (device.silence_seconds) and was ended" in ended.out


def test_a_task_that_prints_a_lot_and_starts_processes(tmp_path: Path) -> None:
    """Its data ends before its memory does, and standard output is nothing but the answer."""
    body = """print("step " * 10_000, flush=True)
    os.write(1, b"raw " * 10_000)
    print("oops " * 10_000, file=sys.stderr)
    if not hasattr(torch, "started"):
        torch.started = subprocess.Popen(["sleep", "7777"])
        if os.fork() == 0:
            time.sleep(7777)"""
    ended = end_of(tmp_path, body, "--memory-limit", "64MiB", "--json")
    found = json.loads(ended.out)
    assert (ended.code, ended.err) == (0, "")
    assert (found["status"], found["max_micro_batch_size"]) == ("verified", 300)
    logs = [path.read_text() for path in tmp_path.glob("study/runs/capacity-*/log.txt")]
    assert all("step step" in log and "raw raw" in log and "oops oops" in log for log in logs)


def test_more_than_the_data_is_refused(tmp_path: Path) -> None:
    ended = end_of(tmp_path, "", "--batch-sizes", "64,512")
    assert (ended.code, ended.out) == (2, "study study\n")
    assert "largest batch size is 512, but the training data has 300 samples" in ended.err
    assert not (tmp_path / "study").exists()


SCRIPT = """
import json
import resource

mine = torch.nn.Linear(64, 1)
optimizer = torch.optim.AdamW(mine.parameters())
task = batchlab.task(model=lambda: mine, loss=loss, train=(x[:300], y[:300]), valid=(x[300:], y[300:]))
wide = batchlab.task(
    model=lambda: torch.nn.Linear(64, 8192), loss=loss, train=(x[:300], y[:300]), valid=(x[300:], y[300:])
)


def everything():
    state = [t.tolist() for t in mine.state_dict().values()], optimizer.state_dict(), torch.get_rng_state().tolist()
    return json.dumps([state, resource.getrlimit(resource.RLIMIT_DATA), torch.get_num_threads(), sorted(os.listdir())])


if __name__ == "__main__":
    before = everything()
    fits = batchlab.find_max_batch_size(task, memory_limit="64MiB", most=16)
    none = batchlab.find_max_batch_size(wide, memory_limit="1MiB")
    print(json.dumps([fits.as_dict(), str(fits), none.as_dict(), str(none), before == everything()]))
"""


def test_from_a_script_nothing_of_the_persons_is_touched(tmp_path: Path) -> None:
    """The loss is no number, which changes no size; the second limit is below what the model's parameters take."""
    ended = end_of(tmp_path, "return model(x).sum() * float('nan')", script=SCRIPT)
    assert (ended.code, ended.err) == (0, "")
    answers: list[Any] = json.loads(ended.out)
    fits, fits_text, none, none_text, untouched = answers
    assert untouched
    assert (fits["status"], fits["max_micro_batch_size"]) == ("verified", 16)
    assert "loss         not finite" in fits_text
    assert (none["status"], none["max_micro_batch_size"], none["probes"]) == ("none", None, [])
    assert "nothing within" in none_text
    assert "would fit" in none_text
    assert none["remedies"]
