"""Whatever happens to a study, nothing is lost, and it ends as if nothing had happened.

The real store, session and engine run over a disk in memory, under a scheduler and a clock of their own, with workers
that execute real runs on the simulated device. A seed decides which processes take turns when, and what hits them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.faults import Quirk, plan
from tests.simulation.histories import history
from tests.simulation.summary import failures, rows

FAST = [pytest.param(first, first + 25, id=f"{first}") for first in range(0, 100, 25)]
SLOW = [pytest.param(first, first + 25, id=f"{first}", marks=pytest.mark.slow) for first in range(100, 300, 25)]
CHAOS = [
    pytest.param(first, first + 100, id=f"{first}", marks=pytest.mark.chaos) for first in range(10_000, 12_000, 100)
]


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


def test_seeds_differ_in_what_happens() -> None:
    plans = [plan(seed) for seed in range(200)]
    assert {mishap.hit for each in plans for mishap in each.mishaps} == set(type(plans[0].mishaps[0].hit))
    assert {each.quirk for each in plans} == set(Quirk)
    assert {each.processes for each in plans} >= {1, 2, 8}
