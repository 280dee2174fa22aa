"""A whole study through the command line and real worker processes, on the simulated device so that it takes seconds.

On that device every step claims seconds of its virtual clock, so that checkpoints are frequent and kills meet every
stage of one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

# A background job of a shell ignores Ctrl-C, and so would what it starts.
STUDY = """
import signal
import sys
import batchlab.cli.app as cli
import batchlab.study.engines as opening
from batchlab.engines.local import LocalEngine
signal.signal(signal.SIGINT, signal.default_int_handler)
opening.engine_factory = lambda asked, hosts=(), begins=None: lambda folder, workers: LocalEngine(folder, workers)
cli.main(sys.argv[1:])
"""

SETTINGS = (
    *("--batch-sizes", "8,16", "--learning-rates", "0.4,0.8,1.4,1.9", "--token-budget", "2048", "--seeds", "2"),
    *("--set", "model.step_overhead_seconds=5.0", "--set", "sweep.max_extensions=0"),
    *("--set", "device.workers=2", "--set", "device.threads=1"),
)

Start = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def start() -> Start:
    """Begin or continue the study in a folder; its process leads a group of its own."""

    def begin(folder: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", STUDY, "study", "simulated", "--out", str(folder), *SETTINGS],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    return begin


@pytest.fixture(scope="session")
def finish() -> Callable[[subprocess.Popen[str]], str]:
    """Wait for a study's process and return what it said; it must have ended well."""

    def wait(process: subprocess.Popen[str]) -> str:
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return said

    return wait


@pytest.fixture(scope="session")
def undisturbed(
    start: Start, finish: Callable[[subprocess.Popen[str]], str], tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    """outcomes.csv of a study that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed") / "study"
    finish(start(folder))
    outcomes = (folder / "outcomes.csv").read_bytes()
    assert outcomes.count(b"\n") > 8
    assert outcomes.count(b",completed\n") > 6
    return outcomes


@pytest.fixture
def workers_of() -> Callable[[Path], list[psutil.Process]]:
    """The worker processes that serve a study, whoever started them."""

    def find(folder: Path) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            command = process.info["cmdline"] or []
            if "batchlab.engines.worker" in command and str(folder) in command:
                found.append(process)
        return found

    return find
