"""Modules of a benchmark's own folder, which is no package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """The module of this name in this benchmark's folder, unknown to others that have one of the same name."""

    def load(benchmark: str, name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(BENCHMARKS / benchmark))
        monkeypatch.delitem(sys.modules, name, raising=False)
        module = import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return module

    return load
