"""Four of the scripts in the wild, from `batchlab init` to an answer. All of them: benchmarks/scripts_in_the_wild."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

RUN = Path(__file__).parents[2] / "benchmarks" / "scripts_in_the_wild" / "run.py"


def answer(script: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, str(RUN), str(folder), "--only", script]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    [path] = folder.glob("*/answer.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("script", "edited"), [("globals_style.py", 0), ("click_style.py", 0), ("key_value_style.py", 5)]
)
def test_a_script_gets_an_answer(script: str, edited: int, tmp_path: Path) -> None:
    found = answer(script, tmp_path)
    assert found["code"] == 0, found
    assert found["edited"] == edited
    assert found["said"].startswith("TRAIN WITH")
    assert list(tmp_path.glob("*/study/report.html"))


def test_an_option_that_is_ignored_is_found(tmp_path: Path) -> None:
    found = answer("ignoring_style.py", tmp_path)
    assert (found["code"], found["edited"]) == (1, 0)
    assert "{batch_size}" in found["said"]
    assert not list(tmp_path.glob("*/study/runs/train-*"))
