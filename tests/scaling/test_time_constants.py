"""beta2, weight decay and warm-up at another batch size or budget."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.experiment import OptimizerConfig
from batchlab.scaling import (
    Refused,
    Scaled,
    beta2_at,
    beta2_by_half_life,
    beta_by_sde,
    decay_timescale,
    epsilon_at,
    warmup_by_tokens,
    weight_decay_at,
    weight_decay_by_timescale,
    weight_decay_of,
)
from batchlab.scaling.refusals import AboveCriticalBatch, SdeOutOfRange, WarmupTooShort
from batchlab.scaling.rules import HalfLifeRule, TimescaleRule


@given(beta2=st.floats(0.95, 0.9999), ratio=st.floats(1 / 64, 64))
def test_half_life_in_tokens_is_held(beta2: float, ratio: float) -> None:
    half_life = math.log(0.5) / math.log(beta2)
    other = beta2_at(beta2, ratio)
    if 0.95 < other < 0.9999:
        assert ratio * math.log(0.5) / math.log(other) == pytest.approx(half_life, rel=1e-6)


def test_known_values() -> None:
    assert beta2_at(0.95, 1.0) == 0.95
    assert beta2_at(0.999, 4.0) == pytest.approx(0.999**4)
    assert beta2_at(0.99, 0.25) == pytest.approx(0.99**0.25)
    assert beta2_at(0.0, 2.0) == 0.0
    assert weight_decay_at(0.1, 4.0) == pytest.approx(0.4)


@given(beta2=st.floats(0.5, 0.99999), ratio=st.floats(1 / 1024, 1024))
def test_beta2_stays_in_its_range_and_never_moves_against_the_rule(beta2: float, ratio: float) -> None:
    value = beta2_at(beta2, ratio)
    assert min(beta2, 0.95) <= value <= max(beta2, 0.9999)
    assert (value - beta2) * (1 - ratio) >= 0


def test_the_default_beta2_is_kept_at_larger_batches() -> None:
    assert beta2_at(0.95, 16) == 0.95  # not 0.44
    assert beta2_at(0.95, 1 / 1024) == 0.9999
    answer = beta2_by_half_life(0.99, 16)
    assert isinstance(answer, Scaled)
    assert answer.value == 0.95
    assert answer.rule == HalfLifeRule(0.99, 16, 0.95, 0.9999)


def test_epsilon_follows_the_noise_of_the_gradient() -> None:
    assert epsilon_at(1e-8, 4) == pytest.approx(5e-9)


def test_the_timescale_of_decay_is_a_share_of_the_run() -> None:
    assert decay_timescale(1e-3, 0.1, 10_000) == pytest.approx(1.0)
    assert decay_timescale(2e-3, 0.1, 10_000) == pytest.approx(0.5)
    assert decay_timescale(1e-3, 0.0, 10_000) == math.inf


@given(rate=st.floats(1e-5, 1.0), batch=st.floats(1 / 64, 64))
def test_a_reference_learning_rate_holds_rate_times_decay(rate: float, batch: float) -> None:
    config = OptimizerConfig(weight_decay=0.1, reference_learning_rate=1e-3)
    assert rate * weight_decay_of(config, batch, config.rate_ratio(rate)) == pytest.approx(1e-4)
    free = OptimizerConfig(weight_decay=0.1)
    assert weight_decay_of(free, batch, free.rate_ratio(rate)) == 0.1


@given(beta=st.floats(0.01, 0.9999), ratio=st.floats(0.01, 1000))
def test_sde_rule_is_refused_exactly_where_it_leaves_the_unit_interval(beta: float, ratio: float) -> None:
    answer = beta_by_sde(beta, ratio)
    if ratio * (1 - beta) >= 1:
        assert isinstance(answer, Refused)
        assert answer.reason == SdeOutOfRange(beta, ratio, 1 / (1 - beta))
    else:
        assert isinstance(answer, Scaled)
        assert 0 < answer.value < 1


def test_sde_rule_at_the_published_limits() -> None:
    assert isinstance(beta_by_sde(0.95, 20.01), Refused)
    assert isinstance(beta_by_sde(0.9, 10.01), Refused)
    answer = beta_by_sde(0.95, 4)
    assert isinstance(answer, Scaled)
    assert answer.value == pytest.approx(0.8)


@given(beta=st.floats(0.99, 0.9995), ratio=st.floats(0.25, 4))
def test_both_beta_rules_agree_to_first_order(beta: float, ratio: float) -> None:
    linear, held = beta_by_sde(beta, ratio), beta2_by_half_life(beta, ratio)
    assert isinstance(linear, Scaled)
    assert isinstance(held, Scaled)
    assert abs(linear.value - held.value) <= (ratio * (1 - beta)) ** 2 + (1 - beta) ** 2 * ratio


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5, math.nan])
def test_a_beta_without_half_life_is_refused(beta: float) -> None:
    assert isinstance(beta2_by_half_life(beta, 2), Refused)
    assert isinstance(beta_by_sde(beta, 2), Refused)


@given(decay=st.floats(1e-4, 1), ratio=st.floats(1 / 64, 64), rate=st.floats(0.1, 10))
def test_weight_decay_holds_the_timescale_in_tokens(decay: float, ratio: float, rate: float) -> None:
    answer = weight_decay_by_timescale(decay, 64, 64 * ratio, learning_rate_ratio=rate)
    assert isinstance(answer, Scaled)
    before, after = 64 / (1e-3 * decay), 64 * ratio / (1e-3 * rate * answer.value)
    assert after == pytest.approx(before)


def test_weight_decay_at_a_longer_budget_falls() -> None:
    answer = weight_decay_by_timescale(0.1, 64, 64, budget_ratio=16)
    assert isinstance(answer, Scaled)
    assert answer.value == pytest.approx(0.1 * 16**-0.47)
    assert isinstance(answer.rule, TimescaleRule)
    assert answer.rule.budget_ratio == 16
    assert answer.rule.budget_exponent == pytest.approx(0.47)


def test_weight_decay_is_refused_above_the_critical_batch() -> None:
    answer = weight_decay_by_timescale(0.1, 64, 512, critical_batch_size=256)
    assert answer == Refused(AboveCriticalBatch(512, 256))
    assert isinstance(weight_decay_by_timescale(0.1, 512, 256, critical_batch_size=128), Scaled)  # downwards
    assert isinstance(weight_decay_by_timescale(-0.1, 64, 128), Refused)
    assert isinstance(weight_decay_by_timescale(0.1, 64, 0), Refused)
    none = weight_decay_by_timescale(0.0, 64, 128)
    assert isinstance(none, Scaled)
    assert none.value == 0


def test_warmup_is_the_same_tokens_and_grows_with_the_budget() -> None:
    same, longer = warmup_by_tokens(1e6, 8192), warmup_by_tokens(1e6, 8192, budget_ratio=4)
    assert isinstance(same, Scaled)
    assert isinstance(longer, Scaled)
    assert (same.value, longer.value) == (1e6, 4e6)
    assert isinstance(warmup_by_tokens(0, 8192), Scaled)  # no warm-up stays none


def test_a_warmup_of_under_five_steps_is_refused() -> None:
    assert isinstance(warmup_by_tokens(5 * 8192, 8192), Scaled)
    answer = warmup_by_tokens(4 * 8192, 8192)
    assert answer == Refused(WarmupTooShort(4 * 8192, 8192, 5))
    assert isinstance(warmup_by_tokens(math.nan, 8192), Refused)
    assert isinstance(warmup_by_tokens(1e6, 0), Refused)
