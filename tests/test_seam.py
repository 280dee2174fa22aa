"""The seam to frameworks: outside their own packages nothing names one or asks for the class of a model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchlab
from batchlab.core.frameworks import SHIPPED

SOURCE = Path(batchlab.__file__).parent
NAMES = [name for name, shipped in SHIPPED.items() if shipped.library]
OWN = {*(Path(shipped.package.replace(".", "/")).name for shipped in SHIPPED.values()), "integrations"}
REGISTRY = SOURCE / "core/frameworks.py"

NAMED = re.compile(rf"\b({'|'.join(NAMES)})\b|batchlab\.({'|'.join(NAMES)})_")
"""A framework's name, alone or in a dotted path; not `torchrun`, `torchtitan` or `adamw_torch`, which are others'."""


def outside() -> list[Path]:
    files = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in OWN]
    return sorted(path for path in files if path != REGISTRY)


TELLS = {
    "cli/doctor.py": "the command that installs a framework",
    "core/experiment.py": "the description of a setting",
    "core/record.py": "the description of a field",
    "plan/launchers.py": "lines of a program of Lightning",
    "words/card_test.py": "what torch found of a card",
    "runs/workload.py": "the commands that install frameworks",
}
"""Modules that may say a framework's name to a person, and where."""


def named(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every identifier, import and text that names a framework; docstrings are for readers."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        found = ""
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = " ".join([getattr(node, "module", None) or "", *(alias.name for alias in node.names)])
        elif isinstance(node, ast.Name | ast.Attribute):
            found = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found = node.value
        if match := NAMED.search(found):
            yield getattr(node, "lineno", 0), match.group()


@pytest.mark.parametrize("path", outside(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_framework_is_named_outside_its_package(path: Path) -> None:
    if str(path.relative_to(SOURCE)) not in TELLS:
        assert list(named(path.read_text(encoding="utf-8"))) == []


CLASSES = {"Module", "Tensor", "Parameter", "array", "Optimizer", *(shipped.factory for shipped in SHIPPED.values())}
"""Classes of frameworks that code could ask for."""


def asked(source: str) -> Iterator[tuple[int, str]]:
    """(line, class) of every isinstance or issubclass that asks for a framework's class."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            for part in ast.walk(node.args[1]):
                name = part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
                if name in CLASSES or name.startswith(("Torch", "Mlx")):
                    yield node.lineno, name


@pytest.mark.parametrize("path", outside(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_class_of_a_framework_is_asked_for(path: Path) -> None:
    assert list(asked(path.read_text(encoding="utf-8"))) == []


def test_the_rules_find_what_they_forbid() -> None:
    source = """
"a docstring may speak of torch"
import torch.nn
from batchlab.mlx_ import memory
load("torch")
f("torchrun --x", "adamw_torch")
isinstance(model, nn.Module | int)
"""
    assert [line for line, _ in named(source)] == [3, 4, 5]
    assert list(asked(source)) == [(7, "Module")]
