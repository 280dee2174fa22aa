from __future__ import annotations

from typing import Any, cast

from batchlab.core.protocols import Trainable
from batchlab.runs.clock import SAVING_SHARE, TrainingClock


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
    device.now = 24.0
    clock.restart()
    device.now = 25.0
    assert clock.lap() == 1.0


def test_checkpoints_are_due_after_so_many_seconds_and_take_a_twentieth_of_the_time_at_most() -> None:
    device: Any = Device()
    clock = TrainingClock(cast(Trainable, device))

    def after(seconds: float) -> bool:
        device.now += seconds
        clock.lap()
        return clock.checkpoint_due(30.0)

    def write() -> None:
        device.now += 4.0

    assert not after(29.0)
    assert after(1.0)
    clock.save(write)
    assert clock.lap() == 0.0
    assert not after(75.0)
    assert after(1.0)
    begun = device.now
    for _ in range(20):
        clock.save(write)
        while not after(0.5):
            pass
    assert SAVING_SHARE * (device.now - begun) >= 20 * 4.0
