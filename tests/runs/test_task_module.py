"""Importing the person's file: without arguments, without its main part, for a limited time."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.runs.task_module import ImportLimit, import_task_module, time_not_queued


@pytest.fixture(autouse=True)
def _as_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["worker.py", "--study", "studies/mine"])
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - known:
        if name.startswith(("_batchlab_task_", "mine")):
            del sys.modules[name]


def imported(source: str, kind: Any = "file", limit: ImportLimit | None = None) -> ModuleType:
    path = Path("mine.py").resolve()
    path.write_text(source)
    reference = TaskReference(kind=kind, target=str(path) if kind == "file" else "mine")
    return import_task_module(reference, limit=limit)


def refused(source: str, kind: Any = "file", limit: ImportLimit | None = None) -> str:
    with pytest.raises(InputError) as caught:
        imported(source, kind, limit)
    return str(caught.value)


SCRIPT = """
import argparse, sys
seen = list(sys.argv)
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=12)
arguments = parser.parse_args()
if __name__ == "__main__":
    raise RuntimeError("this is the script's main part")
"""


@pytest.mark.parametrize("kind", ["file", "module"])
def test_a_script_sees_no_arguments_and_its_main_part_is_not_run(kind: str, tmp_path: Path) -> None:
    module = imported(SCRIPT, kind)
    assert module.arguments.batch_size == 12
    assert len(module.seen) == 1
    assert sys.argv == ["worker.py", "--study", "studies/mine"]


def test_a_script_that_needs_an_argument_says_so() -> None:
    said = refused(SCRIPT.replace("default=12", "required=True"))
    assert "ends itself while it is imported, with exit code 2 (line 6)" in said
    assert "batchlab init " in said


TRAINS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x):
        return self.layer(x)
steps = 0
def fit():
    global steps
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        try:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            steps += 1
        except Exception:
            pass
fit()
"""


@pytest.mark.parametrize("kind", ["file", "module"])
def test_training_while_it_is_imported_is_stopped_before_the_first_step(kind: str) -> None:
    said = refused(TRAINS, kind)
    assert "starts training while it is imported (line 21)" in said
    assert 'if __name__ == "__main__":' in said
    assert "    model=lambda: Net()," in said  # the lines of a task for what the file has


def test_training_is_watched_during_the_import_only() -> None:
    module = imported(TRAINS.replace("\nfit()", "").replace("while True", "for _ in range(3)"))
    module.fit()
    assert module.steps == 3


@pytest.mark.parametrize(("clock", "says"), [("computing", "still computes"), ("elapsed", "still waits")])
def test_an_import_beyond_its_limit_is_stopped(clock: str, says: str) -> None:
    ticks = itertools.count(0.0, 10.0)
    never: dict[str, Any] = {"computing": lambda: 0.0, "elapsed": lambda: 0.0}
    limit = ImportLimit(25.0, 25.0, 0.001, **{**never, clock: lambda: next(ticks)})
    source = "import time\nwhile True:\n    try:\n        time.sleep(0.001)\n    except Exception:\n        pass\n"
    before = signal.getsignal(signal.SIGALRM)
    said = refused(source, limit=limit)
    assert f"{says} after 25 seconds of being imported (line" in said
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_wait_for_a_processor_does_not_count(tmp_path: Path) -> None:
    before = time.monotonic()
    told = tmp_path / "schedstat"
    told.write_text("5000000000 3000000000 17\n")
    assert before - 3.0 <= time_not_queued(told) <= time.monotonic() - 3.0
    for silent in (tmp_path / "none", tmp_path):
        assert before <= time_not_queued(silent) <= time.monotonic()
