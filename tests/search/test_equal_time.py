from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.core.parse import parse_duration
from batchlab.search.budget import SweepDesign
from batchlab.search.equal_time import equal_time_budget

SPEEDS = {4: 1000.0, 16: 3000.0, 64: 5000.0}


def design(sequence_length: int = 1, points: int = 8, speeds: dict[int, float] = SPEEDS) -> SweepDesign:
    return SweepDesign(
        sizes=(4, 16, 64),
        tokens_per_second=speeds,
        sequence_length=sequence_length,
        points=points,
        warmup_fractions=(0.0,),
    )


def test_a_run_has_the_whole_steps_that_fit_into_the_time() -> None:
    made = equal_time_budget(10.01, design())
    assert {size: each.token_budget for size, each in made.by_size.items()} == {4: 10_008, 16: 30_016, 64: 50_048}
    assert (made.run_seconds, made.undertrained) == (10.01, ())
    assert made.tokens_of(16) == 30_016


@given(
    seconds=st.floats(15.0, 1e4),
    length=st.sampled_from([1, 16, 256]),
    points=st.integers(1, 20),
    speeds=st.fixed_dictionaries({size: st.floats(1e5, 1e6) for size in (4, 16, 64)}),
)
def test_every_size_falls_short_of_the_time_by_less_than_a_step(
    seconds: float, length: int, points: int, speeds: dict[int, float]
) -> None:
    made = equal_time_budget(seconds, design(length, points, speeds))
    for size, each in made.by_size.items():
        step = size * length
        assert each.token_budget % step == each.evaluation_interval % step == 0
        assert -1e-3 * step < seconds * speeds[size] - each.token_budget < step * (1 + 1e-3)
        assert 1 <= -(-each.token_budget // each.evaluation_interval) <= points


def test_sizes_with_too_few_steps_are_named() -> None:
    assert equal_time_budget(0.5, design()).undertrained == (64,)


def test_a_time_in_which_no_size_can_be_judged_is_refused_with_one_that_is_enough() -> None:
    with pytest.raises(InputError, match="under 50 steps none is judged") as refused:
        equal_time_budget(0.1, design())
    named = re.search(r"at least (\S+) for that size, (\S+) for all", str(refused.value))
    assert named is not None
    assert equal_time_budget(parse_duration(named[1]), design()).undertrained == (16, 64)
    assert equal_time_budget(parse_duration(named[2]), design()).undertrained == ()


def test_a_size_without_a_speed_counts_as_fast_as_the_nearest() -> None:
    made = equal_time_budget(10.0, design(speeds={4: 1000.0, 16: 3000.0}))
    assert made.by_size[64].tokens_per_second == 3000.0
