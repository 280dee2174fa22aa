"""Tables of the device: what published memory tests tell of each size, and what a CPU cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from batchlab.analysis.capacity.capacity import MemoryPoint
from batchlab.analysis.findings import Findings
from batchlab.core.record import MeasuredMemory
from batchlab.report.device_tables import probes_table
from batchlab.report.tables import endings_table


def test_every_probe_has_its_memory_and_its_loss(study: Callable[[str], Findings]) -> None:
    found = study("whole")
    assert found.memory is not None
    points = (
        MemoryPoint(96, False, None, "Out of memory in step 1."),
        MemoryPoint(32, True, 2**30, finite_loss=False),
        MemoryPoint(64, True, 3 * 2**30, train_loss=6.1667),
    )
    table = probes_table(replace(found, memory=replace(found.memory, points=points)))
    assert [row.texts for row in table.rows] == [
        ("32", "ran", "1.00 GiB", "not finite", ""),
        ("64", "ran", "3.00 GiB", "6.167", ""),
        ("96", "did not fit", "–", "–", "Out of memory in step 1."),
    ]
    assert not probes_table(replace(found, memory=None)).rows


def test_only_an_allocator_reserves(study: Callable[[str], Findings]) -> None:
    assert "peak reserved" not in endings(study("whole"), "process")
    assert endings(study("whole"), "reserved")["peak reserved"] == {"1.00 GiB"}


def endings(found: Findings, measured: MeasuredMemory) -> dict[str, set[str]]:
    """Column → its texts."""
    surface, rows = found.surface, []
    assert surface is not None
    for row in surface.rows:
        assert row.best is not None
        runs = tuple(replace(run, peak_bytes=2**30, measured=measured) for run in row.best.runs)
        rows.append(replace(row, best=replace(row.best, runs=runs)))
    all_runs = tuple(replace(run, peak_bytes=2**30, measured=measured) for run in found.runs)
    table = endings_table(replace(found, runs=all_runs, surface=replace(surface, rows=tuple(rows))))
    return {column.name: {row.texts[i] for row in table.rows} for i, column in enumerate(table.columns)}
