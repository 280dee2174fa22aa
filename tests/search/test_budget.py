from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.search.budget import (
    SweepDesign,
    explored,
    fixed_budget,
    plan_budget,
    quantum,
    runs_within,
    steps_to_judge,
    token_budget_of,
)
from batchlab.search.grid import runs_expected
from batchlab.search.repeats import Repeats
from batchlab.storage.decisions import BudgetDecision

SIZES = (4, 8, 16, 32, 64)
SPEEDS = {4: 20_000.0, 8: 30_000.0, 16: 40_000.0, 32: 50_000.0, 64: 55_000.0}


def test_the_quantum_is_a_whole_number_of_steps_of_every_size() -> None:
    assert quantum((4, 8, 64), 64) == 4096
    assert quantum((12, 20), 1024) == 60 * 1024


@given(
    sizes=st.sets(st.integers(1, 48), min_size=1, max_size=4),
    length=st.integers(1, 64),
    quanta=st.integers(1, 500),
    extra=st.floats(0, 0.999),
    points=st.integers(1, 12),
)
def test_budgets_and_evaluations_are_met_by_every_size(
    sizes: set[int], length: int, quanta: int, extra: float, points: int
) -> None:
    one = quantum(tuple(sizes), length)
    requested = quanta * one + int(extra * one)
    budget, interval = token_budget_of(requested, tuple(sizes), length, points)
    assert budget == quanta * one
    assert 1 <= -(-budget // interval) <= points
    assert all(budget % (size * length) == 0 and interval % (size * length) == 0 for size in sizes)


def test_an_exact_budget_stays_what_it_is() -> None:
    assert token_budget_of(327_680_000, tuple(2**i for i in range(10)), 256, 8)[0] == 327_680_000


@pytest.mark.parametrize(
    ("requested", "sizes", "says"),
    [(100, (4, 8), "less than one step of batch 8"), (9, (4, 6), "whole number of steps at every batch size")],
)
def test_a_budget_below_one_quantum_is_refused(requested: int, sizes: tuple[int, ...], says: str) -> None:
    length = 64 if requested == 100 else 1
    with pytest.raises(InputError, match=says) as caught:
        token_budget_of(requested, sizes, length, 8)
    assert f"at least {quantum(sizes, length):,}" in str(caught.value)


SWEEP = SweepDesign(sizes=SIZES, tokens_per_second=SPEEDS, sequence_length=64)


def plan(seconds: float | None, **more: Any) -> BudgetDecision:
    return plan_budget(seconds, replace(SWEEP, **more))


def test_the_time_of_the_planned_runs_is_the_sum_of_their_tokens_over_speed() -> None:
    made = plan_budget(3600.0, replace(SWEEP, max_extensions=0), reserve=0.0)
    seconds = sum(4 * made.token_budget / speed for speed in SPEEDS.values())
    seconds += 2 * made.token_budget * (1 / SPEEDS[4] + 1 / SPEEDS[8])  # seeds at the two slowest sizes
    seconds += made.token_budget / SPEEDS[4] / 2  # the run of half the budget
    assert made.seconds_planned == pytest.approx(seconds)
    assert made.seconds_planned is not None
    assert 0.98 * 3600 < made.seconds_planned <= 3600
    assert made.runs_planned == made.runs_at_most == runs_expected(5, 4, Repeats())


@given(
    seconds=st.floats(60, 1e6),
    extensions=st.integers(0, 3),
    max_runs=st.one_of(st.none(), st.integers(1, 60)),
    total_runs=st.one_of(st.none(), st.integers(1, 60)),
)
def test_a_plan_never_takes_longer_than_asked(
    seconds: float, extensions: int, max_runs: int | None, total_runs: int | None
) -> None:
    made = plan(seconds, max_extensions=extensions, max_runs=max_runs, total_runs=total_runs)
    assert made.seconds_planned is not None
    assert made.seconds_planned <= seconds * (1 + 1e-9)
    assert made.token_budget % quantum(SIZES, 64) == 0
    assert max_runs is None or made.runs_at_most <= max_runs + Repeats().runs(len(SIZES))
    assert total_runs is None or made.runs_at_most <= total_runs


def test_extension_time_is_spent_on_steps_when_the_largest_size_would_be_undertrained() -> None:
    enough = 50 * 64 * 64
    without = sum(4 / speed for speed in SPEEDS.values()) + 2.5 / SPEEDS[4] + 2 / SPEEDS[8]
    just = enough * without / 0.85 * 1.001
    made = plan(just)
    assert made.token_budget == enough
    assert made.undertrained == ()
    assert made.steps_of_largest == 50


def test_undertrained_sizes_are_named() -> None:
    made = plan(20.0)
    steps = made.token_budget // (64 * 64)
    assert steps < 50
    assert set(made.undertrained) == {size for size in SIZES if made.token_budget // (size * 64) < 50}
    assert 64 in made.undertrained
    assert (made.steps_of_largest, made.steps_to_judge) == (steps, 50)


def test_too_little_time_is_refused_with_what_would_do() -> None:
    with pytest.raises(InputError, match="give at least"):
        plan(0.01)


def test_workers_with_devices_of_their_own_get_more_tokens() -> None:
    one, four = plan(3600.0), plan(3600.0, workers=4, concurrency_gain=4.0)
    assert four.token_budget == pytest.approx(4 * one.token_budget, rel=0.01)
    assert four.workers == 4


def test_a_size_without_measured_speed_counts_as_its_neighbour() -> None:
    some = {size: speed for size, speed in SPEEDS.items() if size != 64} | {64: SPEEDS[32]}
    missing = {size: speed for size, speed in SPEEDS.items() if size != 64}
    assert plan(3600.0, tokens_per_second=missing) == plan(3600.0, tokens_per_second=some)
    with pytest.raises(InputError, match="--token-budget"):
        plan(3600.0, tokens_per_second={})


def test_a_fixed_budget_states_its_cost_and_survives_json() -> None:
    made = fixed_budget(64 * 64 * 80 + 5, SWEEP)
    assert made.token_budget == 64 * 64 * 80
    assert made.steps_of_largest == 80
    assert BudgetDecision.model_validate_json(made.model_dump_json()) == made
    unknown = fixed_budget(64 * 64 * 80, replace(SWEEP, tokens_per_second={}))
    assert unknown.seconds_planned is None


def test_the_default_time_is_planned_when_none_is_given() -> None:
    made = plan(None)
    assert made.seconds_planned is not None
    assert 0 < made.seconds_planned <= 15 * 60


@pytest.mark.parametrize(("fraction", "steps"), [(0.0, 50), (0.1, 50), (0.2, 50), (0.05, 100), (0.01, 500)])
def test_a_short_warm_up_needs_more_steps(fraction: float, steps: int) -> None:
    assert steps_to_judge(fraction) == steps


def test_an_adaptive_search_is_planned_with_fewer_runs_and_so_more_tokens() -> None:
    grid, adaptive = (plan(600, sequence_length=1, adaptive=kind) for kind in (False, True))
    assert adaptive.runs_planned == adaptive.runs_at_most == 16 + 4 + 1 < grid.runs_planned
    assert adaptive.token_budget > grid.token_budget
    assert adaptive.adaptive
    assert not grid.adaptive


@pytest.mark.parametrize(
    ("sizes", "rates", "cells"), [(1, 2, 8), (1, 9, 8), (2, 2, 16), (6, 5, 16), (1, 1, 1), (6, 1, 6), (20, 1, 16)]
)
def test_an_adaptive_search_is_given_cells_by_sizes_for_of_a_range_only_the_ends_count(
    sizes: int, rates: int, cells: int
) -> None:
    assert explored(sizes, rates) == cells


def test_confirmation_seeds_are_part_of_the_cost() -> None:
    plans = [fixed_budget(64_000, replace(SWEEP, repeats=Repeats(confirm=count))) for count in (0, 2)]
    assert plans[1].runs_planned == plans[0].runs_planned + 4
    assert (plans[1].seconds_planned or 0) > (plans[0].seconds_planned or 0)


def test_tokens_of_all_runs_together_are_a_number_of_runs() -> None:
    assert runs_within(1_000, 7_500) == 7
    assert runs_within(1_000, None) is None
    with pytest.raises(InputError, match="less than one run of 1,000"):
        runs_within(1_000, 999)
