"""The optimum at another token budget or model size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.batch import Unit
from batchlab.scaling import Moved, Optimum, Refusal, Refused, Scaled, optimum_at_budget, optimum_at_size
from batchlab.scaling.published import (
    BATCH_BY_BUDGET,
    POWER_LINES,
    RATE_BY_BUDGET,
    RATE_BY_SIZE_MUP,
    STEP_LAW,
    TESTED_BUDGETS,
)
from batchlab.scaling.refusals import (
    LawCountsTokens,
    LawNeedsParameters,
    LawWithoutRate,
    MixedBudgets,
    MixedModels,
    NoModelSize,
    NotPositive,
    OptimumTooFar,
)
from batchlab.scaling.rules import Axis, LawRule, PowerLawRule, Quantity

ONE = [Optimum(1e9, 64, 1e-3, 1e8)]
TWO = [Optimum(1e8, 20, 1e-3, 1e8), Optimum(1.6e9, 80, 2e-3, 1e8)]


def both(moved: Moved) -> tuple[Scaled, Scaled]:
    assert isinstance(moved.best_batch_size, Scaled), moved
    assert isinstance(moved.learning_rate, Scaled), moved
    return moved.best_batch_size, moved.learning_rate


def power_law(scaled: Scaled) -> PowerLawRule:
    assert isinstance(scaled.rule, PowerLawRule)
    return scaled.rule


def test_one_budget_is_moved_by_the_published_exponents() -> None:
    batch, rate = both(optimum_at_budget(ONE, 4e9))
    assert batch.value == pytest.approx(128)
    assert rate.value == pytest.approx(1e-3 * 4**0.09)
    assert power_law(batch).law.measured is None
    assert (power_law(batch).published, power_law(rate).published) == (BATCH_BY_BUDGET, RATE_BY_BUDGET)
    assert (power_law(batch).quantity, power_law(batch).axis) == (Quantity.BATCH_SIZE, Axis.BUDGET)
    assert (power_law(batch).low, power_law(batch).high) == (1e9 / 30, 3e10)


def test_two_budgets_measure_the_exponent() -> None:
    batch, rate = both(optimum_at_budget(TWO, 1.6e10))
    assert power_law(batch).law.measured == pytest.approx(0.50)
    assert power_law(batch).measured_at == (1e8, 1.6e9)
    assert batch.value == pytest.approx(80 * 10**0.5, rel=0.02)
    assert 1 < rate.value / 2e-3 < 10**0.25


@given(budget=st.floats(1e9 / 29, 29e9))
def test_a_moved_optimum_lies_in_its_interval(budget: float) -> None:
    for scaled in both(optimum_at_budget(ONE, budget)):
        assert scaled.low is not None
        assert scaled.high is not None
        assert scaled.low < scaled.value < scaled.high


@pytest.mark.parametrize("budget", [3.1e10, 3e7])
def test_beyond_thirty_fold_is_refused_both_ways(budget: float) -> None:
    moved = optimum_at_budget(ONE, budget)
    assert moved.best_batch_size == moved.learning_rate == Refused(OptimumTooFar(Axis.BUDGET, budget, 1e9, 30))
    assert isinstance(optimum_at_budget(ONE, 3e10).best_batch_size, Scaled)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_budgets_that_are_not_positive_numbers_are_refused(budget: float) -> None:
    assert isinstance(optimum_at_budget(ONE, budget).learning_rate, Refused)
    assert isinstance(optimum_at_budget([Optimum(budget, 64, 1e-3)], 1e9).learning_rate, Refused)


def test_optima_of_different_models_are_not_mixed() -> None:
    moved = optimum_at_budget([*ONE, Optimum(2e9, 80, 1e-3, 3e8)], 4e9)
    assert moved.best_batch_size == Refused(MixedModels((1e8, 3e8)))


def test_a_law_stands_alone_only_where_nothing_was_measured() -> None:
    batch, rate = both(optimum_at_budget([], 1e10, parameters=3e8, sequence_length=2048))
    assert batch.value == pytest.approx(0.58 * 1e10**0.571 / 2048)
    assert rate.value == pytest.approx(1.79 * 3e8**-0.713 * 1e10**0.307)
    assert batch.rule == LawRule(Quantity.BATCH_SIZE, STEP_LAW, *TESTED_BUDGETS)
    assert rate.rule == LawRule(Quantity.LEARNING_RATE, STEP_LAW, *TESTED_BUDGETS)
    assert (batch.low, batch.high) == pytest.approx((batch.value / 2, batch.value * 2))


def test_what_a_law_cannot_say_is_refused() -> None:
    no_rate = optimum_at_budget([], 1e10, law=POWER_LINES)
    assert isinstance(no_rate.best_batch_size, Scaled)
    assert no_rate.learning_rate == Refused(LawWithoutRate(POWER_LINES))
    for moved, reason in (
        (optimum_at_budget([], 1e10), LawNeedsParameters(STEP_LAW)),
        (optimum_at_budget([], 1e10, parameters=1e8, unit=Unit.SAMPLES), LawCountsTokens()),
        (optimum_at_budget([], 1e7, parameters=1e8), OptimumTooFar(Axis.BUDGET, 1e7, 4e9, 30, laws=True)),
        (optimum_at_budget([], 1e13, parameters=1e8), OptimumTooFar(Axis.BUDGET, 1e13, 1e11, 30, laws=True)),
    ):
        assert moved.best_batch_size == Refused(reason)


def test_another_width() -> None:
    batch, rate = both(optimum_at_size(ONE, 4e8))  # twice the width
    assert batch.value == 64
    assert rate.value == pytest.approx(1e-3 * 4**-0.42)
    _, kept = both(optimum_at_size(ONE, 4e8, mup=True))
    assert kept.value == 1e-3
    assert power_law(kept).published == RATE_BY_SIZE_MUP


def test_sizes_of_the_study_itself_are_used() -> None:
    sizes = [Optimum(1e9, 64, 1e-3, 1e7), Optimum(1e9, 64, 1e-3 / 4, 1e9)]  # 100 × in N: exponent −0.30
    _, rate = both(optimum_at_size(sizes, 1e10))
    assert power_law(rate).law.measured == pytest.approx(-0.30, abs=0.005)
    assert power_law(rate).measured_at == (1e7, 1e9)


@pytest.mark.parametrize(
    ("measured", "parameters", "reason"),
    [
        ([], 1e8, NoModelSize()),
        ([Optimum(1e9, 64, 1e-3)], 1e8, NoModelSize()),
        (ONE, 1e10, OptimumTooFar(Axis.MODEL_SIZE, 1e10, 1e8, 30)),
        ([*ONE, Optimum(2e9, 64, 1e-3, 2e8)], 4e8, MixedBudgets()),
        (ONE, math.inf, NotPositive("parameters", math.inf)),
    ],
)
def test_what_cannot_be_moved_to_another_size(measured: list[Optimum], parameters: float, reason: Refusal) -> None:
    assert optimum_at_size(measured, parameters).learning_rate == Refused(reason)


def test_a_model_size_that_is_no_number_is_refused() -> None:
    assert isinstance(optimum_at_size(ONE, math.nan).learning_rate, Refused)
