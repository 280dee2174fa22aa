"""How many samples a trainer has seen after a number of steps, where the last batch of an epoch is short."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epochs:
    """The steps of a trainer that goes through its data epoch by epoch, and never mixes two epochs in one step.

    samples: training samples. micro_batch_size, grad_accum_steps: of a step. drop_last: no short micro-batch is used.
    """

    samples: int
    micro_batch_size: int
    grad_accum_steps: int
    drop_last: bool = False

    @property
    def global_batch_size(self) -> int:
        """Samples of a whole step."""
        return self.micro_batch_size * self.grad_accum_steps

    @property
    def used(self) -> int:
        """Samples of an epoch that are trained on."""
        return self.samples - self.samples % self.micro_batch_size if self.drop_last else self.samples

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.used // self.global_batch_size)

    def samples_after(self, steps: int) -> int:
        """Samples seen in the first `steps` steps."""
        epochs, rest = divmod(steps, self.steps)
        return epochs * self.used + min(rest * self.global_batch_size, self.used)

    def steps_for(self, samples: int) -> int:
        """The fewest steps in which at least so many samples are seen."""
        epochs, rest = divmod(samples, self.used)
        return epochs * self.steps + -(-rest // self.global_batch_size)


def equal_micro_batch(global_batch_size: int, most: int) -> int:
    """The largest micro-batch of at most `most` samples that divides the batch: trainers need equal ones."""
    return max(size for size in range(1, min(most, global_batch_size) + 1) if global_batch_size % size == 0)
