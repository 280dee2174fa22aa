"""Which numbers of a published table somebody's own runs reproduce, and within what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable

COMPARED = (
    *(Quantity.VAL_LOSS, Quantity.BEST_VAL_LOSS, Quantity.TRAIN_LOSS, Quantity.LAST_LOSS),
    *(Quantity.PEAK_BYTES, Quantity.TOKENS_PER_SECOND, Quantity.SECONDS, Quantity.STEPS, Quantity.TOKENS),
)

KEYS = (Quantity.LEARNING_RATE, Quantity.SEQUENCE_LENGTH, Quantity.MODEL)
"""What rows must share besides the batch size, where both tables have it."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A quantity in `pairs` configurations of both tables: their own ÷ published − 1, median and furthest from 0."""

    quantity: Quantity
    pairs: int
    median: float
    furthest: float
    at_batch: float


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`unmatched`: configurations of the published table that the other lacks. Of each table: (largest batch size that
    ran, smallest that ran out of memory); None where there is none."""

    numbers: tuple[Reproduced, ...]
    matched: int
    unmatched: int
    published_limit: tuple[float | None, float | None]
    own_limit: tuple[float | None, float | None]


def reproduction(published: SweepTable, own: SweepTable) -> Reproduction:
    """Configurations are compared by their means over seeds."""
    keys = [key for key in KEYS if key in published.present and key in own.present]
    theirs, ours = _cells(published.entries, keys), _cells(own.entries, keys)
    shared = [key for key in theirs if key in ours]
    numbers = []
    for quantity in COMPARED:
        found = [
            (there / here - 1, theirs[key][0].batch or 0.0)
            for key in shared
            if (here := _mean(theirs[key], quantity)) and (there := _mean(ours[key], quantity))
        ]
        if found:
            furthest, size = max(found, key=lambda item: abs(item[0]))
            numbers.append(Reproduced(quantity, len(found), median(ratio for ratio, _ in found), furthest, size))
    return Reproduction(
        tuple(numbers), len(shared), len(theirs) - len(shared), _limits(published.entries), _limits(own.entries)
    )


def _cells(entries: Sequence[Entry], keys: Sequence[Quantity]) -> Mapping[tuple[object, ...], list[Entry]]:
    cells: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        if entry.batch and entry.ending is Ending.COMPLETED:
            cells.setdefault((entry.batch, *(_key(entry, key) for key in keys)), []).append(entry)
    return cells


def _key(entry: Entry, quantity: Quantity) -> object:
    number = entry.get(quantity)
    return entry.texts.get(quantity) if number is None else float(f"{number:.6g}")


def _mean(entries: Sequence[Entry], quantity: Quantity) -> float:
    """Zero where no row has it, as where it is zero: neither can be compared by a ratio."""
    values = [value for entry in entries if (value := entry.get(quantity)) is not None]
    return fmean(values) if values else 0.0


def _limits(entries: Sequence[Entry]) -> tuple[float | None, float | None]:
    ran = [entry.batch for entry in entries if entry.batch and entry.ending is Ending.COMPLETED]
    failed = [entry.batch for entry in entries if entry.batch and entry.ending is Ending.OUT_OF_MEMORY]
    return max(ran, default=None), min(failed, default=None)
