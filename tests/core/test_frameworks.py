"""The registry of frameworks: which are here, which a model belongs to, and what their extras install."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from batchlab.core import frameworks
from batchlab.core.errors import InputError
from batchlab.core.frameworks import SHIPPED, forks, installed, load_framework, models, name_of_model, own_name
from batchlab.recipes import RECIPES, recipe
from batchlab.simulated.framework import SimulatedFramework


class Module:
    """Named like a framework's base class."""


def test_a_model_is_recognised_by_the_names_of_its_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "mlx"):
        base = type("Module", (), {"__module__": f"{name}.nn.layers"})
        assert name_of_model(type("Mine", (base,), {})()) == name
    assert name_of_model(Module()) is None
    assert name_of_model(3) is None


def test_only_libraries_that_are_installed_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "mlx", ModuleType("mlx"))
    assert installed() == ("mlx",)


def test_what_is_not_known_here_is_named() -> None:
    with pytest.raises(InputError, match="no framework 'jax' here"):
        load_framework("jax")
    with pytest.raises(InputError, match="no framework 'jax' here"):
        models("jax")
    assert own_name(SimulatedFramework()) == "batchlab.simulated.framework:SimulatedFramework"


def test_workers_of_an_unknown_framework_are_not_forked() -> None:
    assert forks("torch")
    assert forks(None)  # not known yet: the process that is forked from says so
    assert not forks("mlx")
    assert not forks("mine:Framework")


def test_every_recipe_has_a_framework_with_its_model() -> None:
    assert all(recipe(name).frameworks for name in RECIPES)
    assert recipe("quickstart").frameworks == ("torch", "mlx")


@pytest.mark.parametrize(("platform", "extras"), [("darwin", set()), ("linux", {"cpu"})])
def test_the_extra_of_mlx_installs_it_for_the_platform_and_no_torch(platform: str, extras: set[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for text in [*project["dependencies"], *project["optional-dependencies"]["mlx"]]]
    here = [one for one in wanted if one.marker is None or one.marker.evaluate({"sys_platform": platform})]
    assert [one.extras for one in here if one.name == "mlx"] == [extras]
    assert "torch" not in {one.name for one in here}


def test_every_framework_that_people_write_in_has_an_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {name for name, shipped in SHIPPED.items() if shipped.library} <= set(project["optional-dependencies"])
