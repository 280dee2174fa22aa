"""Watches a Hugging Face Trainer that trains as it is: noise scale, speed and memory, and no study.

observation = batchlab.observe(trainer.model)
trainer.add_callback(BatchlabCallback(observation))
trainer.train()
print(observation.summary())
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Observes(Protocol):
    """What `batchlab.observe(model)` returns."""

    def micro_batch(
        self, tokens: float, share: float | None = None, samples: int | None = None
    ) -> AbstractContextManager[object]: ...

    def step(self) -> None: ...


class BatchlabCallback(TrainerCallback):
    """Passes the micro-batches and steps of a Trainer on to an observation. Its unit is samples.

    The short last batch of an epoch counts as a whole one. Every micro-batch counts with the same share of the step,
    which is exact where all samples have equally many targets.
    """

    def __init__(self, observation: Observes) -> None:
        self._observation = observation
        self._open: AbstractContextManager[object] | None = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._begin(args)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()
        self._begin(args)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The Trainer has cleared the gradients."""
        self._observation.step()

    def _begin(self, args: TrainingArguments) -> None:
        self._open = self._observation.micro_batch(tokens=args.per_device_train_batch_size)
        self._open.__enter__()

    def _end(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None
