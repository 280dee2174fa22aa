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
    """The benchmark's own module, so that the test cannot disagree with what it reports."""
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
        ("GPT-2", "checkpointing", 5e-4),  # not seen: the random state that each checkpoint keeps, 5 kB
        ("mixture of experts", "accumulation", 1e-4),
        # oneDNN allocates inside its kernels, which shows in the share but not in what is missing per sample
        ("U-Net", "fp32", 0.06),
    ],
)
def test_a_trace_is_what_the_allocator_gives_out(
    measure: ModuleType, name: str, setting: str, tolerance: float
) -> None:
    workload = next(one for one in measure.WORKLOADS if one.name == name)
    traced = measure.traced(workload, setting)
    for size in workload.sizes[:2]:
        found = measure.measured(workload, setting, size)
        assert traced[size].training == pytest.approx(found.training, rel=tolerance)
        if tolerance < 0.01:
            assert traced[size].evaluation == pytest.approx(found.evaluation, rel=1e-3)
