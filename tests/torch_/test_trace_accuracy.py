"""A trace against what torch's allocator gives out, on three models of benchmarks/trace_accuracy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "trace_accuracy"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the benchmark, so that the test measures what the benchmark reports."""
    names = ("measure", "workloads")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module("measure")
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting", "tolerance"),
    [
        ("decoder", "bf16 autocast", 1e-4),
        ("GPT-2", "checkpointing", 5e-4),  # not traced: the random state stored by each checkpoint, 5 kB
        ("mixture of experts", "accumulation", 1e-4),
        # oneDNN allocates inside its kernels
        ("U-Net", "fp32", 0.06),
    ],
)
def test_a_trace_agrees_with_the_allocator(measure: ModuleType, name: str, setting: str, tolerance: float) -> None:
    workload = next(one for one in measure.WORKLOADS if one.name == name)
    traced = measure.traced(workload, setting)
    for size in workload.sizes[:2]:
        found = measure.measured(workload, setting, size)
        assert traced[size].training == pytest.approx(found.training, rel=tolerance)
        if tolerance < 0.01:
            assert traced[size].evaluation == pytest.approx(found.evaluation, rel=1e-3)
