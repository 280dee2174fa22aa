"""A person's function that is meant to make a Trainer, and does something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import TaskReference
from batchlab.core.spec import Workload
from batchlab.integrations.person_file import made_by, person_function

pytest.importorskip("torch")

MINE = """
import argparse
import sys
import torch

def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        try:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        except Exception:
            pass

def needs_data():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    return parser.parse_args()

def arguments():
    return sys.argv[1:]
"""


def called(function: str, folder: Path) -> object:
    path = folder / "mine.py"
    path.write_text(MINE)
    workload = Workload(task=TaskReference(kind="file", target=str(path), attribute=function))
    return made_by(person_function(workload)[1], workload, "a Trainer")


def test_a_function_that_trains_is_stopped_at_its_first_step(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"main in .*mine.py trains.* Let it return a Trainer.* batchlab init mine.py"):
        called("main", tmp_path)


def test_a_function_that_ends_the_program_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs_data in .* ends the program when it is called, with exit code 2"):
        called("needs_data", tmp_path)


def test_a_function_sees_no_arguments_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["worker.py", "--study", "studies/mine"])
    assert called("arguments", tmp_path) == []
