"""Has a run diverged? Judged on means over windows, because single steps of small batches are noisy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.core.errors import RunFailure
from batchlab.core.record import MetricRow

FACTOR = 3.0
"""A mean loss this many times that of the first window is far beyond any transient seen with warm-up."""

SPREADS = 6.0
"""It must also lie this many standard deviations of single steps above it: losses near zero multiply easily."""

MIN_STEPS = 10
MIN_SAMPLES = 256
"""A window holds at least this many steps and samples: at batch 4, the regression loss of one step of a healthy run was
5 times the mean."""


@dataclass(slots=True)
class DivergenceWatch:
    """Takes in the training loss of each step. Its fields are plain numbers, so that they fit into a checkpoint.

    A loss that is not finite is divergence at once. `window` is in steps.
    """

    window: int
    steps: int = 0
    total: float = 0.0
    squares: float = 0.0
    start: float | None = None
    ceiling: float = math.inf

    def diverged(self, loss: float) -> bool:
        """Take in one step; True as soon as the run is beyond recovery."""
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


class Diverged(RunFailure):
    """A run is beyond recovery from `step` on, counted from 1; the other values are what was measured there."""

    def __init__(
        self,
        reason: str,
        *,
        step: int,
        train_loss: float | None = None,
        grad_norm: float | None = None,
        val_loss: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.step = step
        self.train_loss = train_loss
        self.grad_norm = grad_norm
        self.val_loss = val_loss

    def row(self, tokens_per_step: int) -> MetricRow:
        """What was measured at the step, as a row of metrics."""
        return MetricRow(
            step=self.step,
            tokens=self.step * tokens_per_step,
            train_loss=self.train_loss,
            grad_norm=self.grad_norm,
            val_loss=self.val_loss,
        )


def require_finite(
    step: int,
    steps: int,
    *,
    train_loss: float | None = None,
    grad_norm: float | None = None,
    val_loss: float | None = None,
) -> None:
    """Raise Diverged, at `step` of `steps`, unless everything measured there is finite."""
    measured = {"training loss": train_loss, "gradient norm": grad_norm, "validation loss": val_loss}
    for name, value in measured.items():
        if value is not None and not math.isfinite(value):
            raise Diverged(
                f"The {name} was {'NaN' if math.isnan(value) else 'infinite'} at step {step:,} of {steps:,}.",
                step=step,
                train_loss=train_loss,
                grad_norm=grad_norm,
                val_loss=val_loss,
            )


MOST_SKIPPED = 40
"""By then fp16's loss scale was halved from 65,536 to 6e-8, so it is not the scale that makes gradients overflow."""


def require_some_updates(skipped_in_a_row: int, step: int, steps: int, *, train_loss: float) -> None:
    """Raise Diverged where the gradients overflowed in fp16 at MOST_SKIPPED steps in a row."""
    if skipped_in_a_row >= MOST_SKIPPED:
        raise Diverged(
            f"The gradients overflowed in fp16 at {skipped_in_a_row} steps in a row, up to step {step:,} of {steps:,}.",
            step=step,
            train_loss=train_loss,
        )


def require_near_start(
    watch: DivergenceWatch, step: int, steps: int, *, train_loss: float, grad_norm: float | None
) -> None:
    """Let the watch take in the step, and raise Diverged where the mean loss is far above that of its first window."""
    if watch.diverged(train_loss):
        first = "" if watch.start is None else f", {watch.start:.3g},"
        raise Diverged(
            f"The mean training loss was over {FACTOR:g} times its start{first} at step {step:,} of {steps:,}.",
            step=step,
            train_loss=train_loss,
            grad_norm=grad_norm,
        )
