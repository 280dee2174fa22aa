"""Ranks as processes over gloo: what they add up, and what becomes of an error of one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchlab.engines.command import group_program

PROGRAM = Path(__file__).with_name("ranks_program.py")


def run(size: int, case: str) -> subprocess.CompletedProcess[str]:
    command = group_program(size, (sys.executable, str(PROGRAM), case))
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)


def test_two_ranks_with_unequal_shares_train_as_one() -> None:
    ended = run(2, "all_that_ends_well")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_four_ranks_with_unequal_shares_train_as_one() -> None:
    ended = run(4, "all_that_ends_well")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "error"), [("fails", "Rank 1: ValueError: only here"), ("runs_out", "OutOfMemory: Rank 1: ")]
)
def test_what_another_rank_raised_is_raised_by_rank_0(case: str, error: str) -> None:
    ended = run(2, case)
    assert ended.returncode == 1
    assert error in ended.stderr


@pytest.mark.slow
def test_the_check_of_several_cards_on_processes_of_a_cpu() -> None:
    """`doctor --gpu` runs it over NCCL, which no test here can."""
    command = group_program(2, (sys.executable, "-P", "-m", "batchlab.torch_.ranks_test", "cpu"))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (found["cards"], found["right"]) == (2, True)
    assert found["seconds"] > 0
