"""The optimum at another token budget or model size, and the cheapest runs that would confirm it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.batch import Unit
from batchlab.scaling import (
    LAWS,
    Optimum,
    Refused,
    Scaled,
    confirm_batch,
    confirm_budget,
    optimum_at_budget,
    optimum_at_size,
)
from batchlab.scaling.optimum import Moved
from batchlab.scaling.published import DEEPSEEK, POWER_LINES, STEP_LAW

ONE = [Optimum(1e9, 64, 1e-3, 1e8)]
TWO = [Optimum(1e8, 20, 1e-3, 1e8), Optimum(1.6e9, 80, 2e-3, 1e8)]


def both(moved: Moved) -> tuple[Scaled, Scaled]:
    assert isinstance(moved.best_batch_size, Scaled), moved
    assert isinstance(moved.learning_rate, Scaled), moved
    return moved.best_batch_size, moved.learning_rate


def test_one_budget_is_moved_by_the_published_exponents_and_says_so() -> None:
    batch, rate = both(optimum_at_budget(ONE, 4e9))
    assert batch.value == pytest.approx(128)
    assert rate.value == pytest.approx(1e-3 * 4**0.09)
    assert "published exponent" in batch.rule
    assert "DeepSeek" in batch.source
    assert "this study" not in batch.source
    assert "the sign is open" in rate.source


def test_two_budgets_speak_for_themselves_and_say_so() -> None:
    batch, rate = both(optimum_at_budget(TWO, 1.6e10))
    assert "0.50 from 2 measured budgets alone" in batch.rule
    assert "this study, 100M and 1.6B" in batch.source
    assert batch.value == pytest.approx(80 * 10**0.5, rel=0.02)
    assert 1 < rate.value / 2e-3 < 10**0.25


@given(budget=st.floats(1e9 / 29, 29e9))
def test_a_moved_optimum_lies_in_its_interval(budget: float) -> None:
    for scaled in both(optimum_at_budget(ONE, budget)):
        assert scaled.low is not None
        assert scaled.high is not None
        assert scaled.low < scaled.value < scaled.high


@pytest.mark.parametrize(("budget", "bound"), [(3.1e10, "at least 1.03B"), (3e7, "at most 900M")])
def test_beyond_thirty_fold_is_refused_both_ways(budget: float, bound: str) -> None:
    moved = optimum_at_budget(ONE, budget)
    assert isinstance(moved.best_batch_size, Refused)
    assert moved.best_batch_size == moved.learning_rate
    assert "30 ×" in moved.best_batch_size.reason
    assert bound in moved.best_batch_size.reason
    assert isinstance(optimum_at_budget(ONE, 3e10).best_batch_size, Scaled)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_budgets_that_are_none_are_refused(budget: float) -> None:
    assert isinstance(optimum_at_budget(ONE, budget).learning_rate, Refused)
    assert isinstance(optimum_at_budget([Optimum(budget, 64, 1e-3)], 1e9).learning_rate, Refused)


def test_optima_of_different_models_are_not_mixed() -> None:
    moved = optimum_at_budget([*ONE, Optimum(2e9, 80, 1e-3, 3e8)], 4e9)
    assert isinstance(moved.best_batch_size, Refused)
    assert "100M, 300M parameters" in moved.best_batch_size.reason


def test_a_law_stands_alone_only_where_nothing_was_measured() -> None:
    batch, rate = both(optimum_at_budget([], 1e10, parameters=3e8, sequence_length=2048))
    assert batch.value == pytest.approx(0.58 * 1e10**0.571 / 2048)
    assert rate.value == pytest.approx(1.79 * 3e8**-0.713 * 1e10**0.307)
    assert batch.rule.startswith("Step Law: ")
    assert "contested" in batch.range
    assert (batch.low, batch.high) == (pytest.approx(batch.value / 2), pytest.approx(batch.value * 2))


def test_published_laws_at_a_known_point() -> None:
    # 268M parameters, 25B tokens: the table's best cell is about 352 sequences at 2⁻⁸
    sequences = {law.name: law.batch_tokens(25e9, 268e6) / 2048 for law in LAWS}
    assert sequences["Power Lines"] == pytest.approx(290, rel=0.03)
    assert sequences["Step Law"] == pytest.approx(250, rel=0.05)
    assert DEEPSEEK.learning_rate is not None
    assert STEP_LAW.learning_rate is not None
    assert DEEPSEEK.learning_rate(25e9, 268e6) == pytest.approx(0.3118 * (6 * 25e9 * 268e6) ** -0.125)
    assert STEP_LAW.learning_rate(25e9, 268e6) == pytest.approx(2**-8.5, rel=0.2)


def test_what_a_law_cannot_say_is_refused() -> None:
    no_rate = optimum_at_budget([], 1e10, law=POWER_LINES)
    assert isinstance(no_rate.best_batch_size, Scaled)
    assert isinstance(no_rate.learning_rate, Refused)
    for moved, word in (
        (optimum_at_budget([], 1e10), "number of parameters"),
        (optimum_at_budget([], 1e10, parameters=1e8, unit=Unit.SAMPLES), "samples"),
        (optimum_at_budget([], 1e7, parameters=1e8), "published laws"),
        (optimum_at_budget([], 1e13, parameters=1e8), "published laws"),
    ):
        assert isinstance(moved.best_batch_size, Refused)
        assert word in moved.best_batch_size.reason


def test_another_width() -> None:
    batch, rate = both(optimum_at_size(ONE, 4e8))  # twice the width
    assert batch.value == 64
    assert rate.value == pytest.approx(1e-3 * 4**-0.42)
    _, kept = both(optimum_at_size(ONE, 4e8, mup=True))
    assert kept.value == 1e-3
    assert "µP" in kept.source


def test_sizes_of_the_study_itself_are_used() -> None:
    sizes = [Optimum(1e9, 64, 1e-3, 1e7), Optimum(1e9, 64, 1e-3 / 4, 1e9)]  # 100 × in N: exponent −0.30
    _, rate = both(optimum_at_size(sizes, 1e10))
    assert "-0.30 from 2 measured model sizes alone" in rate.rule


@pytest.mark.parametrize(
    ("measured", "parameters", "word"),
    [
        ([], 1e8, "number of parameters"),
        ([Optimum(1e9, 64, 1e-3)], 1e8, "number of parameters"),
        (ONE, 1e10, "30 ×"),
        ([*ONE, Optimum(2e9, 64, 1e-3, 2e8)], 4e8, "different token budgets"),
        (ONE, math.nan, "finite"),
    ],
)
def test_what_cannot_be_moved_to_another_size(measured: list[Optimum], parameters: float, word: str) -> None:
    moved = optimum_at_size(measured, parameters)
    assert isinstance(moved.learning_rate, Refused)
    assert word in moved.learning_rate.reason


def test_the_run_that_confirms_a_batch() -> None:
    sure = confirm_batch(Scaled(2e-3, "", "", "", 1.2e-3, 3e-3), 128, 1e9)
    assert (sure.learning_rates, sure.tokens) == ((2e-3,), 1e9)
    unsure = confirm_batch(Scaled(2e-3, "", "", "", 0.5e-3, 3e-3), 128, 1e9)
    assert (unsure.learning_rates, unsure.tokens) == ((2e-3, 1e-3), 2e9)
    assert unsure.says.startswith("2 runs of 1B tokens at batch 128, learning rate 0.002 and 0.001: ")


def test_the_runs_that_confirm_a_budget() -> None:
    one = confirm_budget(ONE, 2e10)
    assert not isinstance(one, Refused)
    assert (one.token_budget, one.tokens) == (0.25e9, 2e9)
    assert one.batch_size == pytest.approx(32)
    several = confirm_budget(TWO, 4e10)
    assert not isinstance(several, Refused)
    assert (several.token_budget, several.tokens) == (6.4e9, 12.8e9)
    assert several.tokens < 4e10
    assert isinstance(confirm_budget([], 1e9), Refused)
