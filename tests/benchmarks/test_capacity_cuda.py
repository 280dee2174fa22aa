"""The parts of benchmarks/capacity_cuda that need no CUDA device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "capacity_cuda"


@pytest.fixture
def table(module_of: Callable[[str, str], ModuleType]) -> ModuleType:
    return module_of("capacity_cuda", "table")


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 57, 4096])
def test_the_largest_size_by_the_trace(table, largest):
    assert table.largest_within(lambda size: 100 + 7 * size, 100 + 7 * largest) == largest


def test_the_page_has_errors_of_the_prediction_and_marks_what_was_not_proved(table):
    ran = table.Ran(
        size=10, allocated=4 * 2**30, reserved=5 * 2**30, predicted_allocated=3 * 2**30, predicted_reserved=6 * 2**30
    )
    rows = [
        table.Row("lstm", 8 * 2**30, 20, True, 25, (ran,)),
        table.Row("vit", 8 * 2**30, 20, False, 20, (ran,)),
    ]
    page = table.page(rows, ["gru, 8 GiB: no answer"], "a card", "cuda")
    assert "| lstm | 8.00 GiB | 20 | 25 | 10 | 4.000 | -25.0% | 5.000 | +20.0% |" in page
    assert "| vit | 8.00 GiB | 20* | 20 |" in page
    assert "largest size: median error 12.5%, maximum 25.0% (n = 2)" in page
    assert "simulated: a fraction of this card" in page
    assert "- gru, 8 GiB: no answer" in page


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_device_it_says_so():
    done = subprocess.run([sys.executable, str(BENCHMARK / "run.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "needs a CUDA device" in done.stdout
