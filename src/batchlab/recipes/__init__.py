"""Studies that ship. A recipe is a module with settings and a function that builds the task from them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlab.errors import InputError, did_you_mean
from batchlab.spec import Workload
from batchlab.task import Task


@dataclass(frozen=True, slots=True)
class Recipe:
    """`experiment` holds the settings that differ from the defaults; `task` builds what is trained from a workload."""

    name: str
    summary: str
    experiment: Mapping[str, Any]
    task: Callable[[Workload, Path], Task]


RECIPES = {"quickstart": "batchlab.recipes.quickstart", "simulated": "batchlab.recipes.simulated"}


def recipe(name: str) -> Recipe:
    """The recipe of that name; InputError naming those that exist."""
    if name not in RECIPES:
        raise InputError(
            f"There is no recipe {name!r}.{did_you_mean(name, RECIPES)} Possible: {', '.join(RECIPES)}; "
            "or give a study.toml, a Python file, or package.module:name."
        )
    found: Recipe = importlib.import_module(RECIPES[name]).RECIPE
    return found
