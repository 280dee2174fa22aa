"""The shell scripts of examples/ run from beginning to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_adam_against_sgd_ends_with_a_verdict_and_a_page(tmp_path: Path) -> None:
    command = tmp_path / "batchlab"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m batchlab "$@"\n')
    command.chmod(0o755)
    options = ("--batch-sizes", "32,128", "--token-budget", "16k", "--max-runs", "4", "--seeds", "1", "--workers", "1")
    done = subprocess.run(
        ["sh", "examples/adam_against_sgd.sh", "examples/minimal.py", *options],
        cwd=ROOT,
        env=os.environ | {"OUT": str(tmp_path / "out"), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sgd" in done.stdout.splitlines()[-1] or "optimizer.name: adamw | sgd" in done.stdout
    assert (tmp_path / "out/compare.html").stat().st_size > 1_000_000
