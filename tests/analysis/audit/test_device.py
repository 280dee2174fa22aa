from __future__ import annotations

from tests.analysis.audit.tables import clean_sweep, entry, table

from batchlab.analysis.audit.device import device_flaws
from batchlab.analysis.audit.flaw import (
    BeyondMemory,
    Flaw,
    GapBelowMemoryLimit,
    LargerIsSlower,
    NoOptimizerInMemory,
    OptimizerStateWrong,
)
from batchlab.analysis.audit.table import Ending, Entry

GIB = 2.0**30


def found(*entries: Entry) -> list[Flaw]:
    return list(device_flaws(table(*entries)))


def test_a_clean_sweep_has_no_flaw() -> None:
    assert not found(*clean_sweep())


def test_a_larger_size_that_is_slower() -> None:
    rows = [entry(global_batch_size=b, seconds=s, tokens=1e6) for b, s in ((64, 1.67), (128, 1.43), (256, 7.56))]

    (flaw,) = found(*rows)

    assert isinstance(flaw, LargerIsSlower)
    assert (flaw.smaller, flaw.larger, round(flaw.factor, 2)) == (128, 256, 5.29)


def test_speeds_are_compared_per_token() -> None:
    rows = [entry(global_batch_size=b, step_seconds=0.1 * b) for b in (8, 16, 32)]

    assert not found(*rows)


def test_memory_beyond_the_device() -> None:
    (flaw,) = found(entry(global_batch_size=512, peak_bytes=28.49 * GIB, memory_limit=15.99 * GIB))

    assert isinstance(flaw, BeyondMemory)


def test_gib_that_were_written_as_gb_are_not_beyond() -> None:
    assert not found(entry(global_batch_size=8, peak_bytes=16 * GIB, memory_limit=16e9))


def test_the_state_of_adam_is_two_values_per_parameter() -> None:
    right = entry(global_batch_size=1, parameters=22.7e6, optimizer="Adam", optimizer_bytes=182e6)
    wrong = entry(global_batch_size=1, parameters=22.7e6, optimizer="Adam", optimizer_bytes=273e6)

    (flaw,) = found(right, wrong)

    assert isinstance(flaw, OptimizerStateWrong)
    assert (flaw.lines, flaw.states) == ((3,), 2)


def test_nothing_was_tried_below_the_failure() -> None:
    rows = [
        entry(global_batch_size=192),
        entry(ending=Ending.OUT_OF_MEMORY, global_batch_size=208),
        entry(ending=Ending.OUT_OF_MEMORY, global_batch_size=224),
    ]

    (flaw,) = found(*rows)

    assert flaw == GapBelowMemoryLimit((2, 3), 192, 208)


def test_neighbours_leave_no_gap() -> None:
    assert not found(entry(global_batch_size=7), entry(ending=Ending.OUT_OF_MEMORY, global_batch_size=8))


def test_memory_without_an_optimizer() -> None:
    (flaw,) = found(entry(global_batch_size=64, peak_bytes=15 * GIB, optimizer="none", parameters=3e8))

    assert isinstance(flaw, NoOptimizerInMemory)
