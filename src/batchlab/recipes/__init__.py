"""The studies that ship with batchlab. A recipe is a module with settings and a function that builds the task."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from batchlab.core.errors import InputError, did_you_mean, quote
from batchlab.core.frameworks import SHIPPED
from batchlab.core.spec import Workload
from batchlab.core.task import Task

Variant = Literal["low_resource", "quick_test"]


def dashed(variant: Variant) -> str:
    """The name of a variant on the command line and in study names, e.g. `quick-test`."""
    return variant.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A study that ships with batchlab.

    `experiment` holds the settings that differ from the defaults; `task` builds the task from a workload, with the
    class `model` of its framework.
    `low_resource` and `quick_test` hold the changes for a CPU or MPS, and for a run of minutes on two cores.
    """

    name: str
    summary: str
    experiment: Mapping[str, Any]
    task: Callable[[Workload, Path], Task]
    low_resource: Mapping[str, Any] | None = None
    quick_test: Mapping[str, Any] | None = None
    model: str = "Decoder"

    @property
    def frameworks(self) -> tuple[str, ...]:
        """The frameworks that have its model; without a choice, the first of them that is installed is taken."""
        return tuple(name for name, shipped in SHIPPED.items() if self.model in shipped.models)

    def variant(self, variant: Variant) -> Mapping[str, Any]:
        """The changes for this variant. Raises InputError if the recipe has no such variant."""
        changes = self.low_resource if variant == "low_resource" else self.quick_test
        if changes is None:
            raise InputError(
                f"The recipe {self.name} has no --{dashed(variant)} variant. Recipes that "
                f"have one: {', '.join(name for name in RECIPES if recipe(name).quick_test is not None)}."
            )
        return changes


def summary(docstring: str | None) -> str:
    """The first line of a recipe module's docstring, which `batchlab recipes` prints."""
    return (docstring or "").partition("\n")[0].rstrip(".")


RECIPES = {
    "quickstart": "batchlab.recipes.quickstart",
    "tinystories": "batchlab.recipes.tinystories",
    "wikitext2": "batchlab.recipes.wikitext2",
    "elman": "batchlab.recipes.elman",
    "simulated": "batchlab.recipes.simulated",
}


def recipe(name: str) -> Recipe:
    """The recipe with this name. Raises InputError that lists the existing ones if there is none."""
    if name not in RECIPES:
        raise InputError(
            f"There is no recipe {quote(name)}.{did_you_mean(name, RECIPES)} Possible: {', '.join(RECIPES)}; "
            "or use a study.toml, a Python file, or package.module:name."
        )
    found: Recipe = importlib.import_module(RECIPES[name]).RECIPE
    return found
