"""Seconds of training, without what else happens between two steps."""

from __future__ import annotations

from collections.abc import Callable

from batchlab.core.protocols import Trainable

SAVING_SHARE = 0.05
"""Checkpoints take at most this share of a run's time."""


class TrainingClock:
    """The device's clock, read where the loop waits for the device anyway."""

    def __init__(self, trainable: Trainable) -> None:
        self._trainable = trainable
        self._started = self._saved = trainable.synchronize()
        self._saving = 0.0

    def lap(self) -> float:
        """Wait for the device; seconds of training since the last lap."""
        now = self._trainable.synchronize()
        seconds, self._started = now - self._started, now
        return seconds

    def exclude(self, seconds: float) -> None:
        """Seconds of this lap that were not training."""
        self._started += seconds

    def restart(self) -> None:
        """Begin the lap anew, after an evaluation or a checkpoint."""
        self._started = self._trainable.synchronize()

    def save(self, write: Callable[[], None]) -> None:
        """Write a checkpoint, and measure how long that takes."""
        begun = self._trainable.synchronize()
        write()
        self.restart()
        self._saved, self._saving = self._started, self._started - begun

    def checkpoint_due(self, seconds: float) -> bool:
        """Whether `seconds` have passed from the last checkpoint to this lap, and enough for SAVING_SHARE."""
        return self._started - self._saved >= max(seconds, self._saving * (1 / SAVING_SHARE - 1))
