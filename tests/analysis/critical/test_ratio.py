"""The ratio of two means and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from batchlab.analysis.critical.ratio import block_means, fieller, tail_allowance


def test_fieller_agrees_with_the_set_it_is_defined_by() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(3, 1, 25), rng.normal(10, 2, 25)
    found = fieller(y, x)
    assert found.low is not None
    assert found.high is not None
    for theta in (found.low, found.high):
        rest = y - theta * x
        assert abs(rest.mean()) / (rest.std(ddof=1) / 5) == pytest.approx(2.063899, rel=1e-5)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_make_one_block_or_as_many_as_there_are(count: int) -> None:
    rows = np.arange(2.0 * count).reshape(count, 2)
    assert block_means(rows, block_length=count).tolist() == [rows.mean(axis=0).tolist()]
    assert block_means(rows, block_length=1).tolist() == rows.tolist()


def test_a_thin_tail_needs_no_allowance_and_a_heavy_one_does() -> None:
    rng = np.random.default_rng(0)
    assert tail_allowance(10 + rng.standard_normal(50)) == 1.0
    assert tail_allowance(np.ones(6)) == 1.0  # too few to tell a tail from
    quantiles = (1 - (np.arange(64) + 0.5) / 64) ** -(1 / 1.3)  # a Pareto sample without luck; its mean is 4.33
    factor = tail_allowance(quantiles)
    assert quantiles.mean() < 0.8 * 4.33
    assert 4.33 / quantiles.mean() < factor < 3


def test_the_allowance_makes_up_for_a_tail_that_was_not_drawn() -> None:
    """Upper limits of the mean of Pareto values with α = 1.3, from 60 of them: 97.5 % nominal."""
    rng, mean, plain, allowed = np.random.default_rng(1), 1.3 / 0.3, [], []
    for _ in range(300):
        values = rng.pareto(1.3, 60) + 1
        upper = fieller(values, np.ones(60)).high or math.inf
        plain.append(upper >= mean)
        allowed.append(upper * tail_allowance(values) >= mean)
    assert np.mean(plain) < 0.8
    assert np.mean(allowed) > 0.92
