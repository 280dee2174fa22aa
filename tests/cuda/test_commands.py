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
