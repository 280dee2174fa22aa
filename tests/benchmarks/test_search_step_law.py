"""The ranges, simulated surfaces and intervals of benchmarks/search_step_law."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "search_step_law"
NAMES = ("kept", "methods", "ranges", "replay", "rows", "surfaces")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


def test_ranges_are_shifted_just_until_a_third_fails(module: dict[str, ModuleType]) -> None:
    losses = {(size, half): 2.0 + 0.01 * (half + 16) ** 2 for size in (32, 64) for half in range(-22, -10)}
    task = module["replay"].Task(1e8, 1e9, losses, frozenset())
    ranges = module["ranges"].failing(task)
    assert ranges == [(-26, -15), (-27, -16), (-28, -17), (-18, -7), (-17, -6), (-16, -5)]  # 4 of 12 lie outside


def test_another_seed_of_a_published_cell_differs_by_the_assumed_noise(module: dict[str, ModuleType]) -> None:
    losses = {(size, -16): 2.0 for size in range(1, 400)}
    task = module["replay"].Task(1e8, 1e9, losses, frozenset())
    found = np.array([task.answer(cell, seed=1).val_loss for cell in losses])
    assert task.answer((1, -16)).val_loss == 2.0
    assert np.std(found / 2) == pytest.approx(module["replay"].SEED_SD, rel=0.15)


@pytest.mark.parametrize("place", range(4))
def test_a_surface_is_the_same_again_and_has_cells_that_fail(module: dict[str, ModuleType], place: int) -> None:
    surfaces = module["surfaces"]
    kind = surfaces.KINDS[place]
    one, again, other = (surfaces.draw(kind, stream, 3) for stream in (1, 1, 2))
    assert one == again
    assert one.task.losses != other.task.losses
    low, high = one.given
    cells = [(size, half) for size in one.task.sizes for half in range(low, high + 1)]
    failed = [cell for cell in cells if not one.task.answer(cell).finite]
    assert 0 < len(failed) < len(cells)


def test_equal_methods_have_no_difference(module: dict[str, ModuleType]) -> None:
    regrets = [np.array([0.1, 0.2]), np.array([0.3, 0.4])]
    assert module["rows"].paired(regrets, regrets) == (0.0, 0.0)
    low, high = module["rows"].paired(regrets, [one + 1 for one in regrets])
    assert (low, high) == pytest.approx((-1, -1))
