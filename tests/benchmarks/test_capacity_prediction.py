"""The committed page of benchmarks/capacity_prediction is what its committed traces and the published table say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "capacity_prediction"
PUBLISHED = BENCHMARK.parents[1] / ".." / "shared" / "data" / "elman_memory" / "memory_vs_batch.csv"


@pytest.fixture
def page(module_of: Callable[[str, str], ModuleType]) -> ModuleType:
    return module_of("capacity_prediction", "page")


@pytest.fixture
def traces() -> dict[str, Any]:
    return json.loads((BENCHMARK / "traces.json").read_text())


def test_the_page_follows_from_the_traces(page, traces):
    if not PUBLISHED.is_file():
        pytest.skip("elman_memory/memory_vs_batch.csv is not beside this checkout (../shared/data)")
    assert page.page(traces, PUBLISHED) == (BENCHMARK / "results.md").read_text()


def test_a_layer_keeps_what_is_counted_by_hand(page, traces):
    """Arrays kept for the backward pass, by name, against the trace of six layers less that of one."""
    six, one = (page.Curve(traces[name]) for name in ("E1, bf16 weights, no optimizer", "one layer, bf16 weights"))
    assert (six.arrays - one.arrays) / (page.LAYERS - 1) == pytest.approx(sum(page.KEPT_IN_BF16.values()), rel=0.003)
