"""Seconds of training, without what else happens between two steps."""

from __future__ import annotations

from batchlab.core.protocols import Trainable


class TrainingClock:
    """The device's clock, read where the loop waits for the device anyway."""

    def __init__(self, trainable: Trainable) -> None:
        self._trainable = trainable
        self._started = self._saved = trainable.synchronize()

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

    def saved(self) -> None:
        """A checkpoint was just written."""
        self.restart()
        self._saved = self._started

    @property
    def since_saved(self) -> float:
        """Seconds from the last checkpoint to the beginning of this lap."""
        return self._started - self._saved
