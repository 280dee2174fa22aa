"""From a file to typed rows: which column means what, in base units, and what the text around the table says."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from batchlab.analysis.audit.table import TEXTS, WHOLE, Ending, Entry, Quantity, SweepTable
from batchlab.audit.cells import TextTable, parse_table
from batchlab.audit.columns import Column, columns_of, quantity_of, recognise
from batchlab.audit.numbers import BYTES, NOTHING, parse_number
from batchlab.core.errors import InputError, quote

ENDINGS = {
    Ending.OUT_OF_MEMORY: ("out_of_memory", "out of memory", "oom", "memory"),
    Ending.DIVERGED: ("diverged", "nan", "inf", "exploded", "unstable"),
    Ending.FAILED: ("failed", "error", "crashed", "killed", "✗", "✘", "❌", "x", "fail", "no", "false"),
}

ALLOCATED = re.compile(r"([\d.]+)\s*([KMGT]i?B)\s+(?:is\s+)?allocated by PyTorch")
CAPACITY = re.compile(r"total capacity of\s+([\d.]+)\s*([KMGT]i?B)")
"""Of the message of torch.OutOfMemoryError."""


def read_table(path: Path, mapped: Mapping[str, str], given: Mapping[str, str]) -> SweepTable:
    """A file's rows. `mapped`: quantity → column name. `given`: quantity → what holds for every row that lacks it.

    Raises InputError where there is no table, no column or fact that tells the batch size, or a number is impossible.
    """
    text = parse_table(path)
    columns = columns_of(text.columns, mapped)
    facts = {**_facts_of(text), **_given(given)}
    known = {column.quantity for column in columns.values()} | facts.keys()
    if not known & {Quantity.GLOBAL_BATCH_SIZE, Quantity.MICRO_BATCH_SIZE, Quantity.TOKENS_PER_STEP}:
        raise InputError(
            f"{quote(str(path))} has no column with a batch size; name it with --map global_batch_size=COLUMN. "
            f"Columns: {', '.join(map(quote, text.columns[:30]))}."
        )
    entries = tuple(_entry(path, row.line, row.cells, columns, facts) for row in text.rows)
    entries += _out_of_memory_message(text, entries)
    extra = tuple(name for name in text.columns if name not in columns)
    return SweepTable(path.name, entries, extra)


def _given(given: Mapping[str, str]) -> dict[Quantity, float | str]:
    facts: dict[Quantity, float | str] = {}
    for name, text in given.items():
        quantity = quantity_of(name)
        value = text if quantity in TEXTS else parse_number(text, quantity)
        if value is None or (isinstance(value, float) and not (math.isfinite(value) and value >= 0)):
            raise InputError(
                f"--given {quote(f'{name}={text}')}: {quote(text)} is not a number; write it like 327.68M."
            )
        facts[quantity] = value
    return facts


def _facts_of(text: TextTable) -> dict[Quantity, float | str]:
    """What the `- name: value` lines of a page say, where the table has no column for it."""
    facts: dict[Quantity, float | str] = {}
    for name, value in text.facts.items():
        column = recognise(name)
        if column is None:
            column = recognise(name.split("(")[0].strip())
        if column is None or column.quantity in facts:
            continue
        if column.quantity in TEXTS:
            facts[column.quantity] = value
        elif (number := parse_number(value, column.quantity, column.unit)) is not None and math.isfinite(number):
            facts[column.quantity] = number
    named = re.search(r"Optimi[sz]er [Ss]tates? \((\w+)\)", text.prose)
    if named and Quantity.OPTIMIZER not in facts:
        facts[Quantity.OPTIMIZER] = named[1]
    return facts


def _entry(
    path: Path,
    line: int,
    cells: Mapping[str, str],
    columns: Mapping[str, Column],
    facts: Mapping[Quantity, float | str],
) -> Entry:
    numbers: dict[Quantity, float] = {}
    texts: dict[Quantity, str] = {}
    said = ""
    for name, column in columns.items():
        cell = cells.get(name, "")
        if column.quantity in TEXTS:
            if cell.strip():
                texts[column.quantity] = cell.strip()
            continue
        number = parse_number(cell, column.quantity, column.unit)
        if number is None:
            said += f" {cell}" if cell.strip().lower() in NOTHING else ""
            if cell.strip() and cell.strip().lower() not in NOTHING and _ending(cell) is None:
                raise InputError(
                    f"{quote(path.name)}, line {line}: {quote(cell)} in column {quote(name)} is not a number; fix the "
                    f"cell, leave it empty, or map another column with --map {column.quantity.value}=COLUMN."
                )
            said += f" {cell}"
        elif math.isfinite(number):
            _require_possible(path, line, name, column.quantity, number)
            numbers[column.quantity] = number
        else:
            said += " nan"
    for quantity, fact in facts.items():
        if isinstance(fact, str):
            texts.setdefault(quantity, fact)
        else:
            numbers.setdefault(quantity, fact)
    ending = _ending(texts.get(Quantity.OUTCOME, "")) or _ending(said) or Ending.COMPLETED
    return Entry(line, numbers, texts, ending)


def _ending(text: str) -> Ending | None:
    words = text.strip().lower()
    if not words:
        return None
    for ending, names in ENDINGS.items():
        if any(re.search(rf"(?<![a-z]){re.escape(name)}(?![a-z])", words) for name in names):
            return ending
    return None


def _require_possible(path: Path, line: int, name: str, quantity: Quantity, number: float) -> None:
    whole = quantity in WHOLE and number != int(number)
    least = 1 if quantity in WHOLE else 0
    losses = (Quantity.VAL_LOSS, Quantity.BEST_VAL_LOSS, Quantity.TRAIN_LOSS, Quantity.LAST_LOSS, Quantity.SEED)
    if whole or (number < least and quantity not in losses):
        raise InputError(
            f"{quote(path.name)}, line {line}: {number:g} in column {quote(name)} is impossible for "
            f"{quantity.value}; fix the cell, or map another column with --map {quantity.value}=COLUMN."
        )


def _out_of_memory_message(text: TextTable, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What the message of an error on the page says, as a row of its own."""
    allocated, capacity = ALLOCATED.search(text.prose), CAPACITY.search(text.prose)
    if not allocated or not capacity:
        return ()
    line = text.prose[: allocated.start()].count("\n") + 1
    numbers = {
        Quantity.PEAK_BYTES: float(allocated[1]) * BYTES[allocated[2].lower()],
        Quantity.MEMORY_LIMIT: float(capacity[1]) * BYTES[capacity[2].lower()],
    }
    return (Entry(line, numbers, {}, Ending.OUT_OF_MEMORY),)
