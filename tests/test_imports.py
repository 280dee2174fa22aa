"""What may be imported when: torch only where it trains, heavy packages never for `--help`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "scipy", "jinja2")

BLOCK_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", [["--help"], ["study", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = python(
        "import sys\n"
        "from batchlab.cli.app import run\n"
        f"code = run({arguments!r})\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])\n"
        "raise SystemExit(code)"
    )
    assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout


def test_import_batchlab_without_torch() -> None:
    done = python(BLOCK_TORCH + "import batchlab; print(batchlab.task.__name__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "task"


@pytest.mark.parametrize("arguments", [["--help"], ["recipes"], ["recipes", "quickstart"], ["settings"], ["doctor"]])
def test_commands_that_train_nothing_work_without_torch(arguments: list[str]) -> None:
    done = python(BLOCK_TORCH + f"from batchlab.cli.app import run; raise SystemExit(run({arguments!r}))")
    assert done.returncode == 0, done.stderr


def test_a_study_without_torch_says_what_to_install(tmp_path: object) -> None:
    done = python(
        BLOCK_TORCH
        + "from batchlab.recipes import recipe\n"
        + "from batchlab.core.frameworks import load_framework\n"
        + "from batchlab.core.errors import InputError\n"
        + "try:\n    load_framework('torch')\n"
        + "except InputError as error:\n    print(error)\n"
    )
    assert "pip install 'batchlab[torch]'" in done.stdout, done.stderr


def test_a_simulated_study_and_its_documents_need_no_torch(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    commands = [
        [
            *("study", "simulated", "--out", str(folder), "--batch-sizes", "8,16", "--learning-rates", "0.4,0.8"),
            *("--set", "sweep.max_extensions=0", "--token-budget", "3200", "--seeds", "2"),
        ],
        ["report", str(folder)],
        ["status", str(folder)],
        ["plan", str(folder), "--devices", "2"],
    ]
    for command in commands:
        done = python(BLOCK_TORCH + f"from batchlab.cli.app import run; raise SystemExit(run({command!r}))")
        assert done.returncode == 0, (command, done.stderr)
    assert (folder / "report.html").exists()
