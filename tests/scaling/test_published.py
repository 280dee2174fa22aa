"""Published laws at known points, and exponents beside the values they stand for."""

from __future__ import annotations

import math
import statistics

import pytest

from batchlab.scaling import LAWS, Exponent
from batchlab.scaling.published import (
    BATCH_BY_BUDGET,
    BATCH_BY_SIZE,
    DEEPSEEK,
    POWER_LINES,
    PRIOR_BATCH_BY_BUDGET,
    PRIOR_RATE_BY_BUDGET,
    RATE_BY_BUDGET,
    RATE_BY_SIZE,
    RATE_BY_SIZE_MUP,
    STEP_LAW,
)


def test_published_laws_at_a_known_point() -> None:
    # 268M parameters, 25B tokens: the table's best cell is about 352 sequences at 2⁻⁸
    sequences = {law.name: law.batch_tokens(25e9, 268e6) / 2048 for law in LAWS}
    assert sequences["Power Lines"] == pytest.approx(290, rel=0.03)
    assert sequences["Step Law"] == pytest.approx(250, rel=0.05)
    assert DEEPSEEK.learning_rate is not None
    assert STEP_LAW.learning_rate is not None
    assert DEEPSEEK.learning_rate(25e9, 268e6) == pytest.approx(0.3118 * (6 * 25e9 * 268e6) ** -0.125)
    assert STEP_LAW.learning_rate(25e9, 268e6) == pytest.approx(2**-8.5, rel=0.2)


def test_laws_are_the_formulas_as_published() -> None:
    assert DEEPSEEK.batch_tokens(25e9, 268e6) == 0.2920 * (6 * 268e6 * 25e9) ** 0.3271
    assert STEP_LAW.batch_tokens(25e9, 268e6) == 0.58 * 25e9**0.571
    assert POWER_LINES.batch_tokens(25e9, 268e6) == 2048 * 0.0306 * 25e9**0.383
    assert STEP_LAW.learning_rate is not None
    assert STEP_LAW.learning_rate(25e9, 268e6) == 1.79 * 268e6**-0.713 * 25e9**0.307
    assert [law.name for law in LAWS if law.needs_parameters] == ["Step Law", "DeepSeek"]


@pytest.mark.parametrize(
    "exponent", [BATCH_BY_BUDGET, RATE_BY_BUDGET, BATCH_BY_SIZE, RATE_BY_SIZE, RATE_BY_SIZE_MUP], ids=lambda e: e.mean
)
def test_two_standard_deviations_cover_every_reported_exponent(exponent: Exponent) -> None:
    assert exponent.reported
    assert all(abs(found.value - exponent.mean) <= 2 * exponent.sd + 1e-9 for found in exponent.reported)


@pytest.mark.parametrize("exponent", [PRIOR_BATCH_BY_BUDGET, PRIOR_RATE_BY_BUDGET], ids=lambda e: e.mean)
def test_a_prior_is_the_mean_and_spread_of_one_more_publication(exponent: Exponent) -> None:
    values = [found.value for found in exponent.reported]
    assert exponent.mean == pytest.approx(statistics.mean(values), abs=0.005)
    assert exponent.sd == pytest.approx(math.sqrt(1 + 1 / len(values)) * statistics.stdev(values), abs=0.005)
