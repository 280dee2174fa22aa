from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.cluster.toy_runs import STUDY, TASK, TOY, carry_out, losses, toy

from batchlab.core.worker import WorkerCommand
from batchlab.engines.local import LocalEngine
from batchlab.storage.lock import Lock


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, and its study on this machine. All processes of a test run share it; the first makes it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "project"
    folder.mkdir(exist_ok=True)
    with Lock(folder / ".making"):
        if not (folder / "here" / "outcomes.csv").exists():
            (folder / "mine.py").write_text(TASK)
            subprocess.run([*STUDY, "--out", "here"], cwd=folder, check=True, capture_output=True, timeout=240)
    return folder


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float | None]:
    """What two runs end with that nothing disturbs, however long a step takes."""
    command = WorkerCommand((sys.executable, TOY))
    with closing(LocalEngine(tmp_path_factory.mktemp("undisturbed"), 2, cores=2, command=command)) as engine:
        return losses(carry_out(engine, [toy(0), toy(1)]))
