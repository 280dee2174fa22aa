"""A failed assertion on a card is noticed later; the run is repeated with blocking launches, and names the line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.cuda import tasks
from tests.cuda.card import Card

from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Finished
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import CapacitySpec, DeviceSettings, Workload
from batchlab.engines.local import LocalEngine


def record_of(study: Path) -> Record:
    workload = Workload(task=TaskReference(kind="file", target=tasks.__file__, attribute="wide_task"))
    study.mkdir()
    engine = LocalEngine(study, workers=1)
    engine.submit(
        CapacitySpec(workload=workload, micro_batch_size=1, device=DeviceSettings(name="cuda")), exclusive=True
    )
    try:
        while True:
            for event in engine.wait(60.0):
                if isinstance(event, Finished):
                    return event.record
    finally:
        engine.close()


def test_the_line_that_failed_is_named(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_ASSERT_AT", "2")  # the second kernel of the model's first forward pass
    record = record_of(tmp_path / "study")
    assert record.outcome is Outcome.FAILED
    assert "device-side assert" in record.reason
    lines, first = inspect.getsourcelines(tasks.Wide.forward)
    line = first + next(number for number, text in enumerate(lines) if "tanh" in text)
    assert f"line {line} of tasks.py" in record.reason
