"""Whole commands on imaginary cards, with real worker processes and without the check of the task (unchecked.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cuda import card as cards
from tests.cuda import tasks
from tests.cuda.card import CONTEXT, MEMORY, Card

from batchlab.torch_.cuda_allocator import MIB

ROOT = Path(__file__).parents[2]


def command(*arguments: str, module: str = "tests.cuda.unchecked", **card: int) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", module, *arguments, "--set", "device.name=cuda"]
    return subprocess.run(program, cwd=ROOT, env=cards.environment(**card), capture_output=True, text=True, check=False)


def records(study: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(study.glob("runs/*/record.json"))]


def task(name: str) -> str:
    return f"{tasks.__file__}:{name}"


def capacity(study: Path, free: int) -> dict[str, Any]:
    """What was decided about `wide` on a card with so many bytes that no other program holds."""
    done = command(
        *("capacity", task("wide_task"), "--out", str(study), "--prove", "--headroom", "0"),
        other=MEMORY - CONTEXT - free,
    )
    assert "Traceback" not in done.stderr, done.stderr
    decided: dict[str, Any] = json.loads((study / "decisions.json").read_text())["capacity"]
    return decided


def test_the_largest_size_is_proved_beside_other_programs(card: Card, tmp_path: Path) -> None:
    decided = capacity(tmp_path, 768 * MIB)
    assert decided["smallest_failed"] == decided["max_micro_batch_size"] + 1


def test_one_sample_is_proved_where_only_one_fits(card: Card, tmp_path: Path) -> None:
    """A step of one sample takes 290 MiB, and one of two 482 MiB; a warm-up with two would not fit."""
    decided = capacity(tmp_path, 384 * MIB)
    assert (decided["max_micro_batch_size"], decided["smallest_failed"]) == (1, 2)


def test_where_not_even_a_warm_up_fits_the_free_memory_is_known(card: Card, tmp_path: Path) -> None:
    free = 160 * MIB
    decided = capacity(tmp_path, free)
    assert decided["max_micro_batch_size"] is None
    assert decided["limit_bytes"] == free
    # freed after the error, so that all of it is what was free: the search learns what other programs hold
    probed = [found["result"] for found in records(tmp_path) if (found["result"] or {}).get("kind") == "capacity"]
    assert {result["available_bytes"] for result in probed} == {free}
