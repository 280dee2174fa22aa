"""From the reference of a task to the task in memory, and which files its code and data are."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig, TaskReference
from batchlab.core.frameworks import load_framework
from batchlab.core.spec import Workload
from batchlab.runs import workload as module
from batchlab.runs.workload import code_files, data_files, digest_of, hash_files, load, load_task

TASK = """
import numpy as np
import batchlab
from {helper} import WIDTH

x = np.zeros((8, WIDTH), np.float32)
{name} = batchlab.task(model=object, loss=lambda model, x, y: 0, train=(x, x), valid=(x, x))
"""


@pytest.fixture(autouse=True)
def _as_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loading a task changes what can be imported; a worker is a process of its own."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def written(folder: Path, name: str = "task", helper: str = "width_of_mine") -> Workload:
    (folder / f"{helper}.py").write_text("WIDTH = 4\n")
    (folder / "mine.py").write_text(TASK.format(name=name, helper=helper))
    return of("file", str(folder / "mine.py"))


def of(kind: Any, target: str, attribute: str = "task", **more: Any) -> Workload:
    return Workload(task=TaskReference(kind=kind, target=target, attribute=attribute), **more)


def refused(workload: Workload) -> str:
    with pytest.raises(InputError) as caught:
        load_task(workload, Path())
    return str(caught.value)


def test_a_task_is_found_by_its_file_and_by_its_module(tmp_path: Path) -> None:
    loaded = load(written(tmp_path), tmp_path)
    assert (len(loaded.train), len(loaded.valid)) == (8, 8)
    assert load_task(of("module", "mine"), tmp_path).train[0].shape == (8, 4)


def test_the_only_task_needs_no_name_and_others_are_named(tmp_path: Path) -> None:
    workload = written(tmp_path, name="classifier")
    assert load_task(workload, tmp_path).train[0].shape == (8, 4)
    said = refused(of("file", str(tmp_path / "mine.py"), "clasifier"))
    assert "it has classifier" in said
    assert "Did you mean 'classifier'?" in said


def test_what_a_file_says_itself_cannot_be_set(tmp_path: Path) -> None:
    target = written(tmp_path).task.target
    assert "model settings ['layers']" in refused(of("file", target, model={"layers": 3}))
    assert "instead of data.path" in refused(of("file", target, data=DataConfig(path="x.txt")))


def test_what_is_no_task_is_answered_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nnet = torch.nn.Linear(2, 1)\ndef make(arguments):\n    return net\n"
        "def built(workload, cache_dir):\n    return net\n"
    )
    target = str(tmp_path / "mine.py")
    assert "has the torch.nn.Module net, but no task" in refused(of("file", target, "net"))
    assert "must take (workload, cache_dir)" in refused(of("file", target, "make"))
    assert "model=lambda: built()," in refused(of("file", target, "built"))


def test_what_is_not_there_is_named() -> None:
    assert "There is no file" in refused(of("file", "/nowhere/mine.py"))
    assert "There is no module 'package_of_no_name'" in refused(of("module", "package_of_no_name.models"))
    Path("broken.py").write_text("x = 1\nimport package_of_no_name\n")
    said = refused(of("module", "broken"))
    assert "broken does not import: ModuleNotFoundError" in said
    assert "line 2 of broken.py" in said


def test_a_framework_that_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InputError, match=r"pip install 'batchlab\[torch\]'"):
        load_framework("torch")


@pytest.mark.parametrize("name", ["quickstart", "elman"])
def test_a_recipe_without_its_framework_says_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise InputError(f"install {name}")

    monkeypatch.setattr(module, "load_framework", missing)
    assert refused(of("recipe", name, sequence_length=8)) == "install torch"


def test_the_code_of_a_task_is_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = written(tmp_path, helper="helper_of_mine")
    load_task(workload, tmp_path)
    found = code_files(workload.task)
    assert {Path(path).name for path in found} == {"mine.py", "helper_of_mine.py"}
    assert digest_of(found) == digest_of({f"/elsewhere/{Path(path).name}": digest for path, digest in found.items()})
    (tmp_path / "helper_of_mine.py").write_text("WIDTH = 5\n")
    assert digest_of(code_files(workload.task)) != digest_of(found)
    assert code_files(TaskReference(kind="recipe", target="quickstart")) == {}


def test_batchlab_itself_is_no_code_of_the_task_in_a_checkout() -> None:
    root = Path(module.__file__).parents[2]
    assert code_files(TaskReference(kind="file", target=str(root / "mine.py"))) == {str(root / "mine.py"): ""}


def test_data_files_are_digested_one_by_one_and_missing_ones_left_out(tmp_path: Path) -> None:
    file, folder, missing = tmp_path / "a.txt", tmp_path / "texts", tmp_path / "b.txt"
    folder.mkdir()
    (folder / "c.md").write_text("three")
    file.write_text("one")
    found = data_files([file, folder, missing], tmp_path / "cache")
    assert set(found) == {str(file), str(folder / "c.md")}
    file.write_text("two")
    changed = data_files([file], tmp_path / "cache")[str(file)]
    assert changed.sha256 != found[str(file)].sha256
    assert hash_files([missing]) == {str(missing): ""}


def test_stride_and_fraction_are_of_the_training_data_alone(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("0123456789" * 100)
    settings = {"path": str(tmp_path / "text.txt"), "valid_fraction": 0.1}
    loads = {
        "whole": load(of("recipe", "quickstart", sequence_length=8, data=DataConfig(**settings)), tmp_path),
        "less": load(
            of("recipe", "quickstart", sequence_length=8, data=DataConfig(**settings, stride=4, fraction=0.5)), tmp_path
        ),
    }
    assert [len(loaded.valid) for loaded in loads.values()] == [(100 - 1) // 8] * 2
    assert len(loads["whole"].train) == (900 - 1) // 8
    assert len(loads["less"].train) == (450 - 1 - 8) // 4 + 1
    assert loads["less"].source.endswith("; first 50 % of the training tokens")
