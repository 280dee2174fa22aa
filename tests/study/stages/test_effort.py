"""When a probe is too slow to be worth it, on machines whose speed is a formula."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.study.stages.effort import LONGEST_PROBE_SECONDS, UNTIMED, USEFUL, Effort

PASSES = 6


def machine(per_sample: float, overhead: float, asked: list[int]) -> Callable[[int], float]:
    """Seconds per sample where a step takes `overhead` beside its samples."""

    def time(size: int) -> float:
        asked.append(size)
        return per_sample + overhead / size

    return time


def test_a_probe_of_few_samples_is_not_timed() -> None:
    asked: list[int] = []
    assert Effort(machine(100.0, 0.0, asked), PASSES).too_slow(UNTIMED) is None
    assert asked == []


def test_a_quick_probe_is_told_by_one_small_one() -> None:
    asked: list[int] = []
    assert Effort(machine(1e-4, 1e-3, asked), PASSES).too_slow(1000) is None
    assert asked == [8]


def test_a_slow_one_is_replaced_by_a_useful_size() -> None:
    asked: list[int] = []
    found = Effort(machine(1e-2, 1e-1, asked), PASSES).too_slow(15_000)
    assert found is not None
    assert asked == [8, 32, 128, 512], "until four times the size is hardly faster"
    assert found.knee == 128
    assert found.useful == USEFUL * 128
    assert found.seconds == pytest.approx(15_000 * (1e-2 + 1e-1 / 128) * 6.4)


def test_a_size_that_did_not_run_stops_the_estimate() -> None:
    assert Effort(lambda size: None, PASSES).too_slow(15_000) is None


@given(
    per_sample=st.floats(1e-6, 10.0),
    overhead=st.floats(0.0, 10.0),
    size=st.integers(1, 10**6),
)
def test_what_is_run_instead_is_smaller_useful_and_only_where_the_largest_is_slow(
    per_sample: float, overhead: float, size: int
) -> None:
    found = Effort(machine(per_sample, overhead, []), PASSES).too_slow(size)
    if found is None:
        return
    assert found.seconds > LONGEST_PROBE_SECONDS
    assert USEFUL * found.knee <= found.useful < size
