"""Out of memory at one allocation of a run after another: recorded as that, and nothing is left for the next run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cuda import card as cards
from tests.cuda.card import Card
from tests.cuda.injected import EVERY_ALLOCATION
from tests.injections import injection

ROOT = Path(__file__).parents[2]
STRIDE = 11
"""Of the allocations of tensors, each of which costs a run of 0.3 s; tests/cuda/injected.py can try them all."""


@pytest.mark.parametrize("every_tensor", [True, False], ids=["every tensor", "every segment"])
def test_out_of_memory_at_one_allocation_after_the_other(
    card: Card, every_tensor: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    environment = cards.environment() | ({EVERY_ALLOCATION: "1"} if every_tensor else {})
    program = [sys.executable, "-m", "tests.cuda.injected", str(tmp_path), str(STRIDE if every_tensor else 1)]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    what = "failed allocation of a tensor" if every_tensor else "failed allocation of a segment"
    record_property("injection", injection(what, found["tried"], histories=found["tried"]))
    assert found["allocations"] >= (500 if every_tensor else 3)
    assert found["outcomes"] == {"out_of_memory": found["tried"]}, found["reasons"]
    assert set(found["clean"]) == {"completed"}
    assert found["left_bytes"] == 0
