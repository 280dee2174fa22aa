"""check_engine accepts the inline engine and rejects broken ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchlab.core.batch import Unit
from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.spec import CapacitySpec, DeviceSettings, Workload
from batchlab.engines.inline import InlineEngine
from batchlab.testing import check_engine


def probes() -> list[CapacitySpec]:
    workload = Workload(
        task=TaskReference(kind="recipe", target="simulated"),
        unit=Unit.SAMPLES,
        model={"samples": 64, "dimensions": 4, "memory_bytes": 10 * 2**20, "fixed_bytes": 2**20},
    )
    device = DeviceSettings(name="simulated")
    return [CapacitySpec(workload=workload, micro_batch_size=size, device=device) for size in (2, 9, 10)]


class Repeats(InlineEngine):
    def wait(self, timeout: float) -> list[Any]:
        return [event for event in super().wait(timeout) for _ in range(2)]


class SwapsRecords(InlineEngine):
    def wait(self, timeout: float) -> list[Any]:
        events = super().wait(timeout)
        return [Finished(probes()[0], event.record) if isinstance(event, Finished) else event for event in events]


def test_broken_engines_are_rejected(tmp_path: Path) -> None:
    records = check_engine(lambda: InlineEngine(tmp_path / "sound"), probes())
    assert [record.outcome.value for record in records] == ["completed", "completed", "out_of_memory"]
    with pytest.raises(AssertionError, match="ended more than once"):
        check_engine(lambda: Repeats(tmp_path / "repeats"), probes())
    with pytest.raises(AssertionError, match="is named"):
        check_engine(lambda: SwapsRecords(tmp_path / "swaps"), probes())
