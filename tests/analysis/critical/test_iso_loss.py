"""Tokens to one loss from runs with several budgets, on formulas and on the Step Law table."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path

import pytest

from batchlab.analysis.critical.iso_loss import (
    BudgetRun,
    critical_batch_from_budgets,
    noise_of_steps,
    points_at_loss,
    tokens_to_loss,
    tuned_loss,
)
from batchlab.core.errors import InputError

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


def doublings(first: int, last: int) -> list[float]:
    return [2.0**i for i in range(first, last + 1)]


def test_tuned_loss_is_the_vertex_of_a_bracketed_parabola() -> None:
    rates = [2.0**i for i in range(-4, 3)]
    assert tuned_loss({rate: 2 + 0.1 * math.log2(rate / 0.3) ** 2 for rate in rates}) == pytest.approx(2)
    assert tuned_loss({1.0: 3.0, 2.0: 2.5, 4.0: 2.4}) == 2.4  # at an end nothing is extrapolated
    assert tuned_loss({1.0: 3.0}) == 3.0


def test_tokens_to_a_loss_are_interpolated_and_never_extrapolated() -> None:
    curve = [(1e9, 3.0), (4e9, 2.0), (2e9, 2.5)]
    assert tokens_to_loss(curve, 2.25) == pytest.approx(2e9 * math.sqrt(2))
    assert tokens_to_loss(curve, 2.0) == pytest.approx(4e9)
    assert tokens_to_loss(curve, 1.9) is None
    assert tokens_to_loss(curve, 3.5) is None
    with pytest.raises(InputError, match="3 token budgets or more"):
        points_at_loss([BudgetRun(8, 1e-3, 1e9, 3.0), BudgetRun(8, 1e-3, 2e9, 2.9)], 2.95)


def test_budgets_carry_noise_of_the_losses_into_the_interval() -> None:
    """Loss 2 + E^-½ with E = tokens/(1 + B/64): tokens to any loss grow as 1 + B/64."""
    runs = [
        BudgetRun(b, rate, tokens, 2 + (tokens / (1 + b / 64)) ** -0.5 + 0.01 * math.log2(rate) ** 2)
        for b in doublings(2, 9)
        for tokens in doublings(2, 8)
        for rate in (0.5, 1.0, 2.0)
    ]
    found = critical_batch_from_budgets(runs, 2.35, loss_sd=0.015).twice_samples
    narrower = critical_batch_from_budgets(runs, 2.35, loss_sd=0.001).twice_samples
    assert found is not None
    assert narrower is not None
    assert narrower.value is not None
    assert (narrower.value.low or 0) < 64 < (narrower.value.high or 0)
    low, high = (
        (found.value.low, found.value.high) if found.value is not None else (found.at_least, found.at_most or 512)
    )
    assert (low or 0) < (narrower.value.low or 0)
    assert (high or 0) > (narrower.value.high or 0)


def test_noise_of_losses_is_told_as_noise_of_steps() -> None:
    """Loss 2 + tokens^-½ crosses 2.1 at 100 tokens; a relative noise of 0.001 is 0.0021 nats, and
    d ln S = 0.0021 · 2/0.1 between two budgets, of which the crossing has about the mean noise."""
    runs = [BudgetRun(8, 1.0, tokens, 2 + tokens**-0.5) for tokens in (25.0, 99.0, 101.0, 400.0)]
    noise = noise_of_steps([runs[0], runs[1], runs[3]], 2.1, 0.001)
    assert noise == pytest.approx(0.0021 * 2 / 0.1, rel=0.25)
    assert noise_of_steps(runs, 3.5, 0.001) is None


@cache
def step_law() -> tuple[tuple[int, BudgetRun], ...]:
    """The dense table; learning rates rounded to half doublings, as two spellings of one grid point occur."""
    path = SHARED / "steplaw" / "dense_lr_bs_loss.csv"
    if not path.is_file():
        pytest.skip("shared/data/steplaw is not beside this checkout")
    with path.open() as file:
        return tuple(
            (
                int(row["N"]),
                BudgetRun(
                    float(row["bs"]),
                    2 ** (round(2 * math.log2(float(row["lr"]))) / 2),
                    float(row["D"]) / 2048,
                    float(row["smooth loss"]),
                ),
            )
            for row in csv.DictReader(file)
        )


def test_step_law_tokens_to_a_loss() -> None:
    runs = [run for n, run in step_law() if n == 268_304_384]
    found = {p.batch: p.steps * p.batch * 2048 / 1e9 for p in points_at_loss(runs, 2.46) if p.steps}
    expected = {32: 15.8, 64: 12.3, 128: 11.3, 192: 11.4, 256: 11.7, 352: 12.2, 512: 13.4, 1024: 17.0}
    assert {b: found[b] for b in expected} == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("model", "target", "twice", "overhead"),
    [
        (268_304_384, 2.46, 1580, 535),
        (268_304_384, 2.42, 1833, 621),
        (214_663_680, 2.46, 1250, 597),
        (214_663_680, 2.42, 1880, 703),
    ],
)
def test_step_law_within_half_as_much_again(model: int, target: float, twice: float, overhead: float) -> None:
    """From all sizes; what choices of six give is in benchmarks/critical_batch."""
    runs = [run for n, run in step_law() if n == model and run.batch >= 128]
    found = critical_batch_from_budgets(runs, target, loss_sd=0.001)
    assert found.overhead is not None
    assert found.overhead.value is not None
    assert 1 / 1.5 < found.overhead.value.value / overhead < 1.5
    assert found.twice_samples is not None
    low = found.twice_samples.value.low if found.twice_samples.value is not None else found.twice_samples.at_least
    assert (low or 0) < twice
