"""Whatever happens to a study, nothing is lost, and it ends as if nothing had happened.

The real store, session and engine run over a disk in memory, under a scheduler and a clock of their own, with workers
that execute real runs on the simulated device. A seed decides which processes take turns when, and what hits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation import histories
from tests.simulation.disk import FileNode, MemoryDisk, MemoryFile, MemoryLock
from tests.simulation.faults import Hit, Plan, Quirk, plan
from tests.simulation.histories import history, reference
from tests.simulation.summary import failures, rows

FAST = [pytest.param(0, 25, id="0")]
SLOW = [pytest.param(first, first + 25, id=f"{first}", marks=pytest.mark.slow) for first in range(25, 300, 25)]
CHAOS = [
    pytest.param(first, first + 100, id=f"{first}", marks=pytest.mark.chaos) for first in range(10_000, 12_000, 100)
]


@pytest.fixture(autouse=True)
def undisturbed() -> None:
    """The reference is made before a test breaks anything."""
    reference()


@pytest.mark.parametrize(("first", "end"), [*FAST, *SLOW, *CHAOS])
def test_histories(first: int, end: int, record_property: Callable[[str, Any], None]) -> None:
    told = [history(seed) for seed in range(first, end)]
    for row in rows(told):
        record_property("injection", row)
    assert not any(each.wrong for each in told), failures(told)


def test_a_seed_tells_the_same_history_again() -> None:
    for seed in (3, 8):
        once, again = history(seed, traced=True), history(seed, traced=True)
        assert once.trace == again.trace
        assert len(once.trace) > 100


def test_a_worker_that_outlives_its_study_finishes_what_it_was_writing() -> None:
    told = history(10_607)  # the study's process is killed while its worker writes a record
    assert Hit.KILL_STUDY in {mishap.hit for mishap, _ in told.hits}
    assert not told.wrong, failures([told])


def test_seeds_differ_in_what_happens() -> None:
    plans = [plan(seed) for seed in range(200)]
    assert {mishap.hit for each in plans for mishap in each.mishaps} == set(type(plans[0].mishaps[0].hit))
    assert {each.quirk for each in plans} == set(Quirk)
    assert {each.processes for each in plans} >= {1, 2, 8}


def meeting(hit: Hit, seeds: int) -> Iterator[int]:
    """Seeds whose histories are hit by this."""
    return (seed for seed in range(seeds) if any(mishap.hit is hit for mishap in plan(seed).mishaps))


def test_a_disk_that_syncs_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFile, "sync", lambda file: None)
    assert any(history(seed).wrong for seed in meeting(Hit.POWER_CUT, 200))


def test_locks_that_exclude_nobody_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(disk: MemoryDisk, path: Path, owner: str) -> MemoryLock:
        disk.append(path)
        return MemoryLock(FileNode(0), None)

    def crowded(seed: int) -> Plan:
        return replace(plan(seed), processes=8, workers=False, switching=0.02, mishaps=(), quirk=Quirk.NONE)

    monkeypatch.setattr(MemoryDisk, "try_lock", lock)
    monkeypatch.setattr(histories, "plan", crowded)
    assert any(history(seed).wrong for seed in range(20))


def test_seals_that_fit_everything_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchlab.storage.sealed.digest", lambda content: 64 * "0")
    assert any(history(seed).wrong for seed in meeting(Hit.FLIP, 600))
