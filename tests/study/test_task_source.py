"""TASK on the command line: what each form names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchlab.core.errors import InputError
from batchlab.study.task_source import resolve_task


def test_a_recipe_and_its_smaller_version() -> None:
    values = resolve_task("elman")
    assert (values["name"], values["task"]["kind"], values["task"]["target"]) == ("elman", "recipe", "elman")
    assert resolve_task("elman", "quick_test")["name"] == "elman-quick-test"


def test_a_file_and_the_name_of_its_task(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("")
    values = resolve_task(f"{path}:big")
    assert values["name"] == "mine"
    assert values["task"] == {"kind": "file", "target": str(path.resolve()), "attribute": "big"}
    assert resolve_task(str(path))["task"]["attribute"] == "task"


def test_a_module_is_not_imported() -> None:
    values = resolve_task("no_such_package.models:tiny")
    assert values == {
        "name": "models",
        "task": {"kind": "module", "target": "no_such_package.models", "attribute": "tiny"},
    }


def test_a_toml_file_names_a_task_beside_it_and_changes_its_settings(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "study.toml").write_text('task = "mine.py"\n[sweep]\nseeds = 2\n')
    values = resolve_task(str(tmp_path / "study.toml"))
    assert (values["name"], values["sweep"]) == ("study", {"seeds": 2})
    assert values["task"]["target"] == str((tmp_path / "mine.py").resolve())


@pytest.mark.parametrize("task", ["nowhere.py", "nowhere.toml", "quickstrat"])
def test_what_does_not_exist_is_refused(task: str) -> None:
    with pytest.raises(InputError, match="There is no"):
        resolve_task(task)


def test_only_recipes_have_smaller_versions() -> None:
    with pytest.raises(InputError, match="--quick-test"):
        resolve_task("mine.py", "quick_test")
