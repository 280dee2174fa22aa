from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.record import Outcome
from batchlab.search.grid import GridSearch
from batchlab.search.repeats import Repeats
from batchlab.search.retries import FIRST_WARMUP, LONGEST_WARMUP, Retries, chain, retry_of
from batchlab.search.trial import Trial, TrialOutcome
from batchlab.search.warmups import WarmupSearch
from batchlab.testing import check_search

SIZES, RATES = (8, 32), (1e-3, 4e-3, 1.6e-2)
DIVERGED = TrialOutcome(None, why=Outcome.DIVERGED)


def stable_below(trial: Trial) -> float:
    """A longer warm-up bears a higher learning rate, and the larger batch only a low one."""
    assert trial.warmup_fraction is not None
    return (2e-2 if trial.global_batch_size == 8 else 1.5e-3) * (1 + 5 * trial.warmup_fraction)


def judge(trial: Trial) -> TrialOutcome:
    if trial.learning_rate >= stable_below(trial):
        return DIVERGED
    return TrialOutcome(2 + math.log2(trial.learning_rate / 4e-3) ** 2 / 10 + trial.global_batch_size / 1000)


def search(attempts: int, warmups: tuple[float, ...] = (0.1,), **bounds: int) -> WarmupSearch:
    def grid(most: int, earlier: Trial | None) -> GridSearch:
        return GridSearch(SIZES, RATES, seeds=1, max_runs=most, max_extensions=0)

    return WarmupSearch(warmups, grid, Repeats(3, 2), retries=Retries(attempts), **bounds)


def trained(made: WarmupSearch) -> list[Trial]:
    asked: list[Trial] = []
    while trials := made.ask():
        made.tell(trials, [judge(trial) for trial in trials])
        asked += trials
    return asked


@pytest.mark.parametrize("attempts", [0, 1, 3])
@pytest.mark.parametrize("warmups", [(0.1,), (0.1, 0.2)])
def test_it_is_a_search(attempts: int, warmups: tuple[float, ...]) -> None:
    check_search(lambda: search(attempts, warmups), judge)


def test_a_diverged_cell_is_tried_at_half_the_rate_and_twice_the_warmup_until_it_trains() -> None:
    made = search(3)
    asked = trained(made)
    assert made.outcomes[Trial(32, 4e-3, 0, 0.1)] is DIVERGED  # and stays so
    again = [trial for trial in asked if trial in made.retried and trial.seed == 0]
    assert again == [
        Trial(32, 2e-3, 0, 0.2),  # stable below 3e-3
        Trial(32, 8e-3, 0, 0.2),
        Trial(32, 4e-3, 0, 0.4),  # stable below 4.5e-3
    ]


def test_without_the_option_nothing_else_is_asked_for() -> None:
    plain, none = trained(search(0)), trained(search(3))
    assert {trial.warmup_fraction for trial in plain} == {0.1}
    assert [trial for trial in none if trial.seed == 0 and trial.warmup_fraction == 0.1] == [
        trial for trial in plain if trial.seed == 0
    ]


def test_only_divergence_is_tried_again() -> None:
    cell = Trial(8, 1e-3, 0, 0.1)
    for why in (Outcome.OUT_OF_MEMORY, Outcome.FAILED, None):
        assert Retries(2).next([cell], {cell: TrialOutcome(None, why=why)}, 9) == ()
    assert Retries(2).next([cell], {cell: DIVERGED}, 9) == (Trial(8, 5e-4, 0, 0.2),)
    assert Retries(2).next([cell], {cell: DIVERGED}, 0) == ()


def test_a_retried_cell_gets_seeds_only_where_it_is_the_best_of_its_size() -> None:
    asked = trained(search(3))
    repeated = {replace(trial, seed=0) for trial in asked if trial.seed > 0}
    assert Trial(8, 4e-3, 0, 0.1) in repeated
    assert {trial for trial in repeated if trial.global_batch_size == 32} == {Trial(32, 4e-3, 0, 0.4)}


@given(st.integers(1, 40))
def test_a_bound_on_all_runs_holds(total: int) -> None:
    assert len(trained(search(3, total_runs=total))) <= total


@given(st.floats(1e-6, 1.0), st.floats(0.0, 0.99), st.integers(0, 10))
def test_every_attempt_is_gentler_than_the_one_before(rate: float, warmup: float, attempts: int) -> None:
    cells = [(rate, warmup), *chain(rate, warmup, attempts)]
    assert len(cells) <= attempts + 1
    for (before, short), (after, long) in pairwise(cells):
        assert after < before
        assert short <= long < 1
        assert long <= max(short, LONGEST_WARMUP)


def test_a_cell_without_a_warmup_gets_one() -> None:
    assert retry_of(1e-3, 0.0) == (5e-4, FIRST_WARMUP)
