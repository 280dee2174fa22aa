from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "early_stopping" / "run.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("early_stopping_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_what_is_saved_and_what_is_lost(benchmark: ModuleType) -> None:
    first = benchmark.Curve(8, 1e-3, (3.0, 2.5, 2.2, 2.1))
    too_high = benchmark.Curve(8, 1e-1, (5.0, 4.5, 4.2, 4.1))
    late = benchmark.Curve(16, 1e-3, (3.5, 2.8, 2.2, 2.0))  # behind at first, ahead in the end
    saved, lost, regret = benchmark.replay([first, too_high, late], 0.25, 0.3)
    assert (saved, lost, regret) == (pytest.approx(0.75 / 3), False, 0.0)
    saved, lost, regret = benchmark.replay([first, too_high, late], 0.25, 0.1)
    assert (saved, lost) == (pytest.approx(2 * 0.75 / 3), True)
    assert regret == pytest.approx(100 * (2.1 / 2.0 - 1))
    assert benchmark.replay([first], 0.5, 0.01) == (0.0, False, 0.0)


def test_flips_count_the_pairs_that_turn(benchmark: ModuleType) -> None:
    curves = [benchmark.Curve(8, rate, losses) for rate, losses in ((1e-3, (1.0, 2.0)), (2e-3, (2.0, 1.0)))]
    assert "number 2, and 100 % of all pairs" in benchmark.flips(curves)
