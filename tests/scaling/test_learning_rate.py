"""The learning rate at another batch size: known answers, what every rule must keep, and what it must refuse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.experiment import AcrossBatch
from batchlab.scaling import (
    LearningRateRule,
    Refused,
    Scaled,
    learning_rate_at,
    learning_rate_between,
    learning_rate_ratio,
)
from batchlab.scaling.refusals import AboveBestBatch, BatchTooFar, NeedsBestBatch, NothingTuned, NotPositive
from batchlab.scaling.rules import BatchRule, Interpolated, SameBatch

SATURATING, UNCAPPED, SQUARE_ROOT, LINEAR, NONE = LearningRateRule
batches = st.floats(1, 1e6)


def value(answer: Scaled | Refused) -> float:
    assert isinstance(answer, Scaled), answer
    return answer.value


@pytest.mark.parametrize(
    ("rule", "start", "end", "best", "ratio"),
    [
        (SATURATING, 64, 256, 256, 2.5),  # (1 + 4)/(1 + 1)
        (SATURATING, 256, 64, 256, 0.4),
        (SATURATING, 64, 512, 256, 2.5 * (2 / 1.5) ** (1 / 3)),
        (SATURATING, 512, 2048, 256, (1.5 / 1.125) ** (1 / 3)),
        (UNCAPPED, 256, 512, 256, 2 / 1.5),
        (SQUARE_ROOT, 64, 256, 256, 2.0),
        (LINEAR, 64, 256, 256, 4.0),
        (NONE, 64, 256, 256, 1.0),
    ],
)
def test_known_ratios(rule: LearningRateRule, start: float, end: float, best: float, ratio: float) -> None:
    assert learning_rate_ratio(rule, start, end, best) == pytest.approx(ratio)
    assert value(learning_rate_at(1e-3, start, end, rule, best_batch_size=best)) == pytest.approx(1e-3 * ratio)


@given(rule=st.sampled_from(LearningRateRule), a=batches, b=batches, c=batches, best=batches)
def test_two_moves_are_one_move(rule: LearningRateRule, a: float, b: float, c: float, best: float) -> None:
    both = learning_rate_ratio(rule, a, b, best) * learning_rate_ratio(rule, b, c, best)
    assert both == pytest.approx(learning_rate_ratio(rule, a, c, best), rel=1e-9)


@given(a=batches, factor=st.floats(1, 8), best=batches)
def test_saturating_lies_between_keeping_and_linear(a: float, factor: float, best: float) -> None:
    ratio = learning_rate_ratio(SATURATING, a, a * factor, best)
    assert 1 - 1e-9 <= ratio <= factor * (1 + 1e-9)
    assert ratio <= 2 * max(best / a, 1) + 1e-9


def test_without_noise_scale_the_formula_becomes_linear() -> None:
    assert learning_rate_ratio(UNCAPPED, 8, 32, math.inf) == 4.0
    assert learning_rate_ratio(UNCAPPED, 8, 32, 1e12) == pytest.approx(4.0)


@given(rule=st.sampled_from(LearningRateRule), start=batches, factor=st.floats(1 / 8, 8), best=batches)
def test_the_value_lies_in_its_interval(rule: LearningRateRule, start: float, factor: float, best: float) -> None:
    answer = learning_rate_at(1e-3, start, start * factor, rule, best_batch_size=best)
    if isinstance(answer, Scaled) and answer.low is not None and answer.high is not None:
        assert 0 < answer.low <= answer.value <= answer.high


def test_every_answer_carries_its_rule() -> None:
    answer = learning_rate_at(1e-3, 64, 128, best_batch_size=256)
    assert isinstance(answer, Scaled)
    assert answer.rule == BatchRule(SATURATING, 64, 128, 256, AcrossBatch.FIXED, smallest=8, largest=512)


@pytest.mark.parametrize("rule", [LINEAR, SQUARE_ROOT])
def test_the_range_of_rules_of_the_noisy_regime_ends_at_the_best_batch(rule: LearningRateRule) -> None:
    answer = learning_rate_at(1e-3, 64, 128, rule, best_batch_size=256)
    assert isinstance(answer, Scaled)
    assert isinstance(answer.rule, BatchRule)
    assert (answer.rule.smallest, answer.rule.largest) == (8, 256)


def test_an_uncertain_best_batch_widens_the_interval() -> None:
    sure = learning_rate_at(1e-3, 64, 512, best_batch_size=256)
    unsure = learning_rate_at(1e-3, 64, 512, best_batch_size=Scaled(256, SameBatch(), low=64, high=1024))
    assert isinstance(sure, Scaled)
    assert isinstance(unsure, Scaled)
    assert unsure.value == sure.value
    assert unsure.low is not None
    assert sure.low is not None
    assert unsure.low == pytest.approx(sure.low / 2.5 * (2 / (9 / 8)) ** (1 / 3) / (2 / 1.5) ** (1 / 3))
    assert unsure.high > sure.high  # type: ignore[operator]


def test_where_beta2_follows_the_batch_the_slower_rise_is_in_the_interval() -> None:
    fixed = learning_rate_at(1e-3, 8, 64, best_batch_size=1e6)
    follows = learning_rate_at(1e-3, 8, 64, best_batch_size=1e6, across_batch=AcrossBatch.HALF_LIFE)
    assert isinstance(fixed, Scaled)
    assert isinstance(follows, Scaled)
    assert fixed.low is not None
    assert follows.low is not None
    assert fixed.low > 2e-3 > follows.low  # 8^⅓ = 2
    assert isinstance(follows.rule, BatchRule)
    assert follows.rule.across_batch is AcrossBatch.HALF_LIFE


@pytest.mark.parametrize("rule", LearningRateRule)
def test_nothing_is_extrapolated_further_than_it_was_tested(rule: LearningRateRule) -> None:
    answer = learning_rate_at(1e-3, 64, 1024, rule, best_batch_size=2048)
    assert isinstance(answer, Refused)
    assert answer.reason == BatchTooFar(64, 1024, 8)
    assert isinstance(learning_rate_at(1e-3, 1024, 64, rule, best_batch_size=2048), Refused)


@pytest.mark.parametrize("rule", [SATURATING, UNCAPPED, LINEAR])
def test_rules_that_need_the_best_batch_say_so(rule: LearningRateRule) -> None:
    answer = learning_rate_at(1e-3, 64, 128, rule)
    assert isinstance(answer, Refused)
    assert answer.reason == NeedsBestBatch(rule)


@pytest.mark.parametrize("rule", [LINEAR, SQUARE_ROOT])
@pytest.mark.parametrize(("start", "end"), [(128, 512), (512, 128), (512, 1024)])
def test_rules_of_the_noisy_regime_end_at_the_best_batch(rule: LearningRateRule, start: float, end: float) -> None:
    answer = learning_rate_at(1e-3, start, end, rule, best_batch_size=256)
    assert isinstance(answer, Refused)
    assert answer.reason == AboveBestBatch(rule, 256, max(start, end))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_that_are_not_positive_numbers_are_refused(bad: float) -> None:
    for answer in (
        learning_rate_at(bad, 64, 128, best_batch_size=64),
        learning_rate_at(1e-3, bad, 128, best_batch_size=64),
        learning_rate_at(1e-3, 64, bad, best_batch_size=64),
        learning_rate_at(1e-3, 64, 128, best_batch_size=bad),
        learning_rate_between({64: 1e-3}, bad, best_batch_size=64),
    ):
        assert isinstance(answer, Refused)
        assert isinstance(answer.reason, NotPositive)
        assert answer.reason.value == bad or math.isnan(bad)


def test_the_same_batch_needs_no_rule() -> None:
    answer = learning_rate_at(1e-3, 64, 64, LINEAR)
    assert value(answer) == 1e-3
    assert isinstance(answer, Scaled)
    assert answer.low is None


def test_between_measured_sizes_the_study_itself_answers() -> None:
    tuned: dict[float, float] = {64: 1e-3, 256: 4e-3}
    answer = learning_rate_between(tuned, 128)
    assert isinstance(answer, Scaled)
    assert answer.value == pytest.approx(2e-3)
    assert (answer.low, answer.high) == (1e-3, 4e-3)
    assert answer.rule == Interpolated(64, 256)


def test_outside_measured_sizes_the_nearest_is_extrapolated() -> None:
    tuned: dict[float, float] = {64: 1e-3, 256: 4e-3}
    assert value(learning_rate_between(tuned, 512, best_batch_size=256)) == pytest.approx(4e-3 * (2 / 1.5) ** (1 / 3))
    assert value(learning_rate_between(tuned, 32, best_batch_size=256)) == pytest.approx(1e-3 * 5 / 9)
    assert value(learning_rate_between(tuned, 256)) == 4e-3
    assert isinstance(learning_rate_between(tuned, 512), Refused)
    assert learning_rate_between({}, 512, best_batch_size=256) == Refused(NothingTuned())


def test_a_wide_gap_is_not_interpolated() -> None:
    answer = learning_rate_between({16: 1e-3, 1024: 4e-3}, 128, best_batch_size=1024)
    assert isinstance(answer, Scaled)
    assert isinstance(answer.rule, BatchRule)
    assert answer.rule.rule is SATURATING
