"""One training run of a search, and its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.core.record import Outcome


@dataclass(frozen=True, slots=True, order=True)
class Trial:
    """One training run to make. `warmup_fraction` None: that of the study's schedule, where it is no axis."""

    global_batch_size: int
    learning_rate: float
    seed: int
    warmup_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial. `val_loss` None: diverged, out of memory or failed. `judged` False: undertrained.

    `why` says which of the three, where that is known: a divergence is evidence about the learning rate, too little
    memory only about the batch size.
    """

    val_loss: float | None
    judged: bool = True
    why: Outcome | None = None

    @property
    def finite(self) -> bool:
        """The run came to an end with a loss that can be compared."""
        return self.val_loss is not None and math.isfinite(self.val_loss)
