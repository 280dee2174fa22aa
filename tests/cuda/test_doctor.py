"""`batchlab doctor --gpu` on the stand-in: every check ends with a verdict, and its file names nobody."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

from tests.cuda import card as cards
from tests.cuda.card import Card

from batchlab.torch_.card_test import CHECKS

ROOT = Path(__file__).parents[2]
WITHOUT_NUMBERS = {"card", "allocator", "traces", "ranks", "limit", "out_of_memory", "host_memory_fallback"}


def test_every_check_of_a_card(card: Card, tmp_path: Path) -> None:
    home = tmp_path / "jane-doe"
    home.mkdir()
    owner = {"HOME": str(home), "USER": "jane-doe", "LOGNAME": "jane-doe", "PYTHONPATH": f"{ROOT}/src"}
    environment = cards.environment(memory=8 * 2**30) | owner
    program = [sys.executable, "-m", "batchlab", "doctor", "--gpu"]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    text = (tmp_path / "batchlab-doctor-gpu.json").read_text()
    checks = {found["check"]: found for found in json.loads(text)["checks"]}
    assert list(checks) == list(CHECKS), done.stdout
    assert all("numbers" in found for found in checks.values()), done.stdout
    for name in WITHOUT_NUMBERS:
        assert checks[name]["verdict"] == "ok", done.stdout
    uuid = checks["card"]["numbers"].get("card_uuid")
    assert uuid is None
    for personal in ("jane-doe", str(tmp_path), str(ROOT), f'"{platform.node()}"', "00000000-0000"):
        assert personal not in text
