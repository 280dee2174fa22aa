"""Out of memory at every allocation of a run in turn: recorded as that, and nothing is left for the next run."""

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


@pytest.mark.parametrize("every_tensor", [True, False], ids=["every tensor", "every segment"])
def test_out_of_memory_at_every_allocation_in_turn(
    card: Card, every_tensor: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    environment = cards.environment() | ({EVERY_ALLOCATION: "1"} if every_tensor else {})
    program = [sys.executable, "-m", "tests.cuda.injected", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    what = "failed allocation of a tensor" if every_tensor else "failed allocation of a segment"
    record_property("injection", injection(what, found["allocations"], histories=found["allocations"]))
    assert found["allocations"] >= (500 if every_tensor else 3)
    assert found["outcomes"] == {"out_of_memory": found["allocations"]}, found["reasons"]
    assert set(found["clean"]) == {"completed"}
    assert found["left_bytes"] == 0
