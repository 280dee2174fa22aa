from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.toy_runs import STUDY, TASK, TOY, carry_out, losses, toy

from batchlab.core.worker import WorkerCommand
from batchlab.engines.local import LocalEngine


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, and its study on this machine."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(TASK)
    subprocess.run([*STUDY, "--out", "here"], cwd=folder, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture
def expected(tmp_path: Path) -> list[float | None]:
    """What two runs end with that nothing disturbs."""
    command = WorkerCommand((sys.executable, TOY))
    with closing(LocalEngine(tmp_path / "undisturbed", 2, cores=2, command=command)) as engine:
        return losses(carry_out(engine, [toy(0, 0.4), toy(1, 0.4)]))
