from __future__ import annotations

from batchlab.analysis.audit.table import Ending, Entry, Quantity, SweepTable
from batchlab.analysis.audit.unchecked import Check, unchecked

ALL = {
    Quantity.STEPS: 10.0,
    Quantity.TOKEN_BUDGET: 10.0,
    Quantity.TOKENS_PER_STEP: 1.0,
    Quantity.LEARNING_RATE: 1e-3,
    Quantity.PEAK_BYTES: 1.0,
    Quantity.MEMORY_LIMIT: 2.0,
    Quantity.OPTIMIZER_BYTES: 8.0,
    Quantity.PARAMETERS: 1.0,
}


def table(**numbers: float) -> SweepTable:
    found = {Quantity(name): value for name, value in numbers.items()}
    return SweepTable("t", (Entry(2, found, {Quantity.OPTIMIZER: "adamw"}, Ending.COMPLETED),))


def test_a_table_with_everything_is_checked_for_everything() -> None:
    assert unchecked(table(**ALL)) == ()


def test_each_check_names_what_it_lacks() -> None:
    lacks = {each.check: each.lacks for each in unchecked(table(steps=10.0, learning_rate=1e-3, peak_bytes=1.0))}
    assert lacks == {
        Check.TOKENS: (Quantity.TOKENS, Quantity.SEQUENCE_LENGTH),
        Check.MEMORY: (Quantity.MEMORY_LIMIT,),
        Check.OPTIMIZER_STATE: (Quantity.OPTIMIZER_BYTES, Quantity.PARAMETERS),
    }
