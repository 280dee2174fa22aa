from __future__ import annotations

from typing import Any, cast

from batchlab.core.protocols import Trainable
from batchlab.runs.clock import TrainingClock


class Device:
    now = 10.0

    def synchronize(self) -> float:
        return self.now


def test_laps_are_training_alone() -> None:
    device: Any = Device()
    clock = TrainingClock(cast(Trainable, device))
    device.now = 14.0
    clock.exclude(1.0)  # a diagnostic snapshot
    assert clock.lap() == 3.0
    device.now = 19.0  # an evaluation
    clock.restart()
    device.now = 21.0
    assert clock.lap() == 2.0
    assert clock.since_saved == 11.0
    device.now = 24.0
    clock.saved()
    assert clock.since_saved == 0.0
    device.now = 25.0
    assert clock.lap() == 1.0
