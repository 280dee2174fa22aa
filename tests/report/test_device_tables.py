"""Tables of the device: what published memory tests tell of each size, and what a CPU cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from batchlab.analysis.capacity.capacity import MemoryPoint
from batchlab.analysis.findings import Findings
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


def test_a_cpu_reserves_nothing(study: Callable[[str], Findings]) -> None:
    found = study("whole")
    assert found.surface is not None
    rows = []
    for row in found.surface.rows:
        assert row.best is not None
        runs = tuple(replace(run, peak_reserved_bytes=2**30) for run in row.best.runs)
        rows.append(replace(row, best=replace(row.best, runs=runs)))
    surface = replace(found.surface, rows=tuple(rows))

    def reserved(device: str) -> set[str]:
        task_info = found.task_info.model_copy(update={"device": device})
        return {row.texts[-1] for row in endings_table(replace(found, surface=surface, task_info=task_info)).rows}

    assert reserved("cpu") == {"–"}
    assert reserved("cuda") == {"1.00 GiB"}
