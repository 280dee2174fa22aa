"""A table of training runs as the audit sees it: typed rows in base units, whatever the file looked like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Quantity(StrEnum):
    """What a column means. The value is the name that a person gives it by.

    Base units: samples, tokens, steps, seconds, bytes, nats.
    """

    GLOBAL_BATCH_SIZE = "global_batch_size"
    MICRO_BATCH_SIZE = "micro_batch_size"
    GRAD_ACCUM_STEPS = "grad_accum_steps"
    DATA_PARALLEL_SIZE = "data_parallel_size"
    SEQUENCE_LENGTH = "sequence_length"
    TOKENS_PER_STEP = "tokens_per_step"
    LEARNING_RATE = "learning_rate"
    SEED = "seed"
    STEPS = "steps"
    TOKENS = "tokens"  # what a run has seen
    TOKEN_BUDGET = "token_budget"  # what it was given
    EPOCHS = "epochs"
    WARMUP_STEPS = "warmup_steps"
    VAL_LOSS = "val_loss"
    BEST_VAL_LOSS = "best_val_loss"
    TRAIN_LOSS = "train_loss"
    LAST_LOSS = "last_loss"
    SECONDS = "seconds"
    STEP_SECONDS = "step_seconds"
    TOKENS_PER_SECOND = "tokens_per_second"
    PEAK_BYTES = "peak_bytes"
    MEMORY_LIMIT = "memory_limit"
    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    OPTIMIZER_BYTES = "optimizer_bytes"
    MODEL = "model"
    OUTCOME = "outcome"


TEXTS = frozenset({Quantity.OPTIMIZER, Quantity.MODEL, Quantity.OUTCOME})
"""Quantities whose values are texts."""

WHOLE = frozenset(
    {
        Quantity.GLOBAL_BATCH_SIZE,
        Quantity.MICRO_BATCH_SIZE,
        Quantity.GRAD_ACCUM_STEPS,
        Quantity.DATA_PARALLEL_SIZE,
        Quantity.SEQUENCE_LENGTH,
    }
)
"""Quantities that count something a step cannot have a part of."""


class Ending(StrEnum):
    """How a row's run ended, as far as the table says."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. `line` is its line in the file; quantities that it lacks are missing from `numbers` and `texts`."""

    line: int
    numbers: Mapping[Quantity, float]
    texts: Mapping[Quantity, str]
    ending: Ending

    def get(self, quantity: Quantity) -> float | None:
        return self.numbers.get(quantity)

    @property
    def batch(self) -> float | None:
        """Samples in one optimizer update: as given, or micro-batch × accumulation × devices."""
        given = self.get(Quantity.GLOBAL_BATCH_SIZE)
        return given if given is not None else self.product

    @property
    def product(self) -> float | None:
        """micro-batch × accumulation × devices; what is missing counts as 1, but not the micro-batch."""
        micro = self.get(Quantity.MICRO_BATCH_SIZE)
        if micro is None:
            return None
        accumulated = self.numbers.get(Quantity.GRAD_ACCUM_STEPS, 1.0)
        return micro * accumulated * self.numbers.get(Quantity.DATA_PARALLEL_SIZE, 1.0)

    @property
    def tokens(self) -> float | None:
        """What the run has seen, or else what it was given."""
        seen = self.get(Quantity.TOKENS)
        return self.get(Quantity.TOKEN_BUDGET) if seen is None else seen

    @property
    def tokens_per_step(self) -> float | None:
        """As given, or batch × sequence length."""
        given = self.get(Quantity.TOKENS_PER_STEP)
        if given is not None:
            return given
        length = self.get(Quantity.SEQUENCE_LENGTH)
        return None if self.batch is None or length is None else self.batch * length

    @property
    def updates(self) -> float | None:
        """Optimizer updates: tokens ÷ tokens per step where both are known, else the steps that are given.

        A table's steps may count something else, such as logged rows; its tokens are rarely wrong.
        """
        if self.tokens is not None and self.tokens_per_step:
            return self.tokens / self.tokens_per_step
        return self.get(Quantity.STEPS)

    @property
    def loss(self) -> float | None:
        """The loss that sizes are compared by: on held-out data where there is one, else on the training data."""
        for quantity in (Quantity.VAL_LOSS, Quantity.BEST_VAL_LOSS, Quantity.TRAIN_LOSS, Quantity.LAST_LOSS):
            if quantity in self.numbers:
                return self.numbers[quantity]
        return None


@dataclass(frozen=True)
class SweepTable:
    """The rows of a file. `extra` names the columns that have no meaning here."""

    name: str
    entries: tuple[Entry, ...]
    extra: tuple[str, ...] = ()

    @cached_property
    def present(self) -> frozenset[Quantity]:
        """Quantities that at least one row has."""
        return frozenset(q for entry in self.entries for q in (*entry.numbers, *entry.texts))

    @cached_property
    def groups(self) -> tuple[tuple[Entry, ...], ...]:
        """Rows that can be compared with each other: of one model, optimizer, sequence length and token budget.

        Without a column of budgets, a token count is a budget where every one in the table is shared by several batch
        sizes; else it is what a row happened to be trained for, and differences are for the detectors to find.
        """
        by = [q for q in (Quantity.MODEL, Quantity.OPTIMIZER) if q in self.present]
        stated = (Quantity.PARAMETERS, Quantity.SEQUENCE_LENGTH, Quantity.TOKEN_BUDGET)
        numbers: list[Quantity] = [q for q in stated if q in self.present]
        if Quantity.TOKEN_BUDGET not in numbers and _are_budgets(self.entries, numbers):
            numbers.append(Quantity.TOKENS)
        found: dict[tuple[object, ...], list[Entry]] = {}
        for entry in self.entries:
            key = (*(entry.texts.get(q) for q in by), *(entry.numbers.get(q) for q in numbers))
            found.setdefault(key, []).append(entry)
        return tuple(map(tuple, found.values()))


def _are_budgets(entries: tuple[Entry, ...], models: list[Quantity]) -> bool:
    sizes: dict[tuple[object, ...], set[float | None]] = {}
    for entry in entries:
        if entry.get(Quantity.TOKENS) is not None:
            model = tuple(entry.numbers.get(q) for q in models)
            sizes.setdefault((*model, entry.get(Quantity.TOKENS)), set()).add(entry.batch)
    return len(sizes) > 1 and all(len(batches) > 1 for batches in sizes.values())
