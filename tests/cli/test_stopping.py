"""Whatever ends a command before it is done, its last words are how to go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import batchlab.study.engines as opening
from batchlab.cli.app import run
from batchlab.core.errors import StorageFailed, WorkerLost


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(KeyboardInterrupt(), 130), (WorkerLost("Lost."), 1), (StorageFailed("Full."), 1)],
    ids=["Ctrl-C", "lost", "full"],
)
def test_ended_while_the_task_is_inspected_it_names_the_command_to_go_on_and_leaves_nothing(
    error: BaseException,
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Interrupted:
        """An engine that this happens in."""

        def __init__(self, folder: Path, workers: int) -> None:
            (folder / "runs").mkdir()

        def submit(self, *_: object, **__: object) -> None: ...

        def wait(self, timeout: float) -> list[object]:
            raise error

        def close(self) -> None: ...

    monkeypatch.setattr(opening, "engine_factory", lambda asked, hosts=(), begins=None: Interrupted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ["study", "simulated", "--out", str(tmp_path / "my study"), "--seeds", "2"]
    assert run(arguments) == exit_code
    said = capsys.readouterr().err
    assert said.splitlines()[-1].strip() == f"batchlab study simulated --out '{tmp_path}/my study' --seeds 2"
    assert list(tmp_path.iterdir()) == []


LOADING = """
import builtins
loading = builtins.__import__
def interrupted(name, *rest):
    if name == "cyclopts":
        raise KeyboardInterrupt
    return loading(name, *rest)
builtins.__import__ = interrupted
from batchlab.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_line_loads_is_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=False)
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("batchlab: stopped")
