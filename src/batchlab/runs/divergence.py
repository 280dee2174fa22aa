"""Has a run diverged? Judged on means over windows, because single steps of small batches are noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass

FACTOR = 3.0
"""A window whose mean loss is this many times the first window's is far beyond any transient seen with warm-up."""

SPREADS = 6.0
"""And it must lie this many standard deviations of single steps above it: losses near zero multiply easily."""

MIN_STEPS = 10
MIN_SAMPLES = 256
"""A window holds at least so many steps and samples: at batch 4, one step's regression loss was seen at 5 times the
mean in a run that was fine."""


@dataclass(slots=True)
class DivergenceWatch:
    """Fed each step's training loss; its fields are plain numbers, so that a checkpoint can carry them.

    A loss that is not finite is divergence at once. `window` is in steps.
    """

    window: int
    steps: int = 0
    total: float = 0.0
    squares: float = 0.0
    start: float | None = None
    ceiling: float = math.inf

    def diverged(self, loss: float) -> bool:
        """Take in one step; True as soon as the run is beyond saving."""
        if not math.isfinite(loss):
            return True
        self.steps += 1
        self.total += loss
        self.squares += loss * loss
        if self.steps < self.window:
            return False
        mean = self.total / self.steps
        above = mean > self.ceiling
        if self.start is None:
            spread = math.sqrt(max(0.0, self.squares / self.steps - mean * mean))
            self.start = mean
            self.ceiling = mean + max((FACTOR - 1) * abs(mean), SPREADS * spread)
        self.steps, self.total, self.squares = 0, 0.0, 0.0
        return above


def window_steps(global_batch_size: int) -> int:
    """Steps of one window at this batch size."""
    return max(MIN_STEPS, math.ceil(MIN_SAMPLES / global_batch_size))


@dataclass(frozen=True, slots=True)
class Divergence:
    """What was measured at the step, counted from 1, from which on a run is beyond saving."""

    step: int
    train_loss: float | None = None
    grad_norm: float | None = None
    val_loss: float | None = None

    def reason(self, steps: int, start: float | None) -> str:
        """One sentence. `steps` is the run's length, `start` the mean loss of the watch's first window."""
        at = f"at step {self.step:,} of {steps:,}"
        measured = {
            "training loss": self.train_loss,
            "gradient norm": self.grad_norm,
            "validation loss": self.val_loss,
        }
        for name, value in measured.items():
            if value is not None and not math.isfinite(value):
                return f"The {name} was {'NaN' if math.isnan(value) else 'infinite'} {at}."
        began = "" if start is None else f", {start:.3g},"
        return f"The mean training loss was over {FACTOR:g} times its start{began} {at}."
