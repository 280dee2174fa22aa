"""The committed figures of benchmarks/scaling_step_law, on the public table where it is at hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from batchlab.scaling import Optimum, Scaled, optimum_at_budget

ROOT = Path(__file__).parents[2]
BENCHMARK = ROOT / "benchmarks" / "scaling_step_law"
TABLE = ROOT / ".." / "shared" / "data" / "steplaw" / "dense_lr_bs_loss.csv"
needs_table = pytest.mark.skipif(not TABLE.is_file(), reason="the Step Law table is not part of the project")


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The benchmark's own module, so that the test cannot disagree with what it reports."""
    names = ("batches", "table", "words")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("batches")
    for name in names:
        sys.modules.pop(name, None)


@needs_table
@pytest.mark.parametrize(("where", "target"), [("below", 0.15), ("above", 0.35)])
def test_the_default_learning_rate_rule_meets_its_targets(batches: ModuleType, where: str, target: float) -> None:
    moves = [m for m in batches._moves(import_module("table").read_tasks(TABLE)) if m.place.endswith(where)]
    ratio = batches.RULES[batches.DEFAULT]
    for direction in ("up", "down"):
        regrets = [batches._rate_regret(m, ratio, m.best) for m in moves if m.place.startswith(direction)]
        assert len(regrets) > 100
        assert np.percentile(regrets, 90) <= target


@needs_table
def test_large_budgets_are_predicted_from_small_ones(batches: ModuleType) -> None:
    """From the smallest budget of each model to the largest (6 to 25 ×), against leaving the optimum where it was."""
    table = import_module("table")
    tasks = table.read_tasks(TABLE)
    for size in {task.parameters for task in tasks}:
        own = sorted((task for task in tasks if task.parameters == size), key=lambda task: task.tokens)
        batch, rate = table.fitted_optimum(own[0])
        moved = optimum_at_budget([Optimum(own[0].tokens, batch, 2.0**rate)], own[-1].tokens)
        assert isinstance(moved.best_batch_size, Scaled)
        assert isinstance(moved.learning_rate, Scaled)
        loss = own[-1].loss_between(moved.best_batch_size.value, np.log2(moved.learning_rate.value))
        assert loss < own[-1].loss_between(batch, rate)
        assert loss / own[-1].best_loss < 1.004


def test_a_group_without_moves_is_a_dash_and_not_a_crash(batches: ModuleType) -> None:
    """Two batch sizes whose best is the larger one: no move lies above B_opt."""
    table = import_module("table")
    losses = {
        size: {rate: 2 + 0.01 * (rate + 9) ** 2 + 0.1 / size for rate in (-10.0, -9.0, -8.0)} for size in (32, 64)
    }
    tasks = [table.Task(1e8, tokens, losses) for tokens in (1e9, 4e9)]
    text = "\n".join(batches.batch_moves(tasks))
    assert "–" in text
    assert "nan" not in text
    assert "above B_opt: no move of these tasks lies there" in text


def test_without_the_table_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK / "run.py"), "--data", str(tmp_path), "--out", str(tmp_path / "out.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("The Step Law table")
    assert not (tmp_path / "out.md").exists()
