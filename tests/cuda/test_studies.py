"""Throughput and whole studies on 1 and 8 imaginary cards: which cards do the work, and a study that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cuda import card as cards
from tests.cuda.card import MEMORY, Card
from tests.cuda.test_commands import ROOT, records, task

ARGUMENTS = (
    *("--set", "device.name=cuda", "--batch-sizes", "4", "--search", "grid", "--learning-rates", "1e-3,2e-3,4e-3"),
    *("--set", "sweep.max_extensions=0", "--token-budget", "64k", "--seeds", "1"),
)
SETTINGS = {"OMP_NUM_THREADS": "1"}


def started(command: str, study: Path, *more: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.cuda.unchecked", command, task("decoder_task"), "--out", str(study)]
    return subprocess.Popen(
        [*program, *ARGUMENTS, *more],
        cwd=ROOT,
        env=(environment or cards.environment()) | SETTINGS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    assert "Traceback" not in output, output
    assert process.returncode == 0, output
    return output


def trained(study: Path) -> list[dict[str, Any]]:
    return [found for found in records(study) if found["run_id"].startswith("train-")]


def cards_of(found: list[dict[str, Any]]) -> set[int]:
    """Numbers, from 0, of the cards that runs were on, by their uuids."""
    return {int(record["environment"]["card_uuid"][-2:], 16) - 1 for record in found}


def test_throughput_is_measured_until_it_settles_and_says_what_the_card_is(card: Card, tmp_path: Path) -> None:
    finished(started("throughput", tmp_path, environment=cards.environment(processes=3, busy=40)))
    [found] = [found for found in records(tmp_path) if found["run_id"].startswith("throughput-")]
    result, environment = found["result"], found["environment"]
    assert found["outcome"] == "completed"
    assert result["stable"] is not None
    assert result["other_load"] == 0.4
    assert result["clock_mhz"] == 1200
    assert result["issuing_share"] > 0.9  # kernels take no time here
    assert result["flops_per_token"] > 6 * 150_000  # more than the weights alone, without the embedding
    assert (environment["compute_capability"], environment["max_clock_mhz"]) == ("8.0", 1410)
    assert environment["device_memory_bytes"] == MEMORY
    assert "launch-bound" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("devices", "visible", "name", "workers", "expected"),
    [(1, None, "cuda", 1, {0}), (8, "2,5", "cuda", 2, {2, 5}), (8, None, "cuda:3", 1, {3})],
)
def test_a_study_uses_the_cards_that_it_may(
    card: Card, tmp_path: Path, devices: int, visible: str | None, name: str, workers: int, expected: set[int]
) -> None:
    environment = cards.environment(devices=devices) | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    finished(started("study", tmp_path, "--set", f"device.name={name}", environment=environment))
    runs = trained(tmp_path)
    assert {run["outcome"] for run in runs} == {"completed"}
    assert cards_of(runs) <= expected  # one of two may do it all, where it is ready before the other
    assert json.loads((tmp_path / "decisions.json").read_text())["concurrency"]["workers"] == workers


def test_a_killed_study_goes_on_and_ends_with_the_same_outcomes(card: Card, tmp_path: Path) -> None:
    environment, whole, killed = cards.environment(devices=8), tmp_path / "whole", tmp_path / "killed"
    finished(started("study", whole, environment=environment))
    assert json.loads((whole / "decisions.json").read_text())["concurrency"]["workers"] == 8
    assert cards_of(trained(whole)) <= set(range(8))
    process = started("study", killed, environment=environment)
    deadline = time.monotonic() + 240
    while not trained(killed) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert process.poll() is None, "the study ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {found["run_id"] for found in trained(killed)}
    finished(started("study", killed, environment=environment))
    assert before
    assert (killed / "outcomes.csv").read_bytes() == (whole / "outcomes.csv").read_bytes()
