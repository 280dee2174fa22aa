from __future__ import annotations

import math
from dataclasses import replace

import pytest

from batchlab.analysis.values import Comparing, Interval
from batchlab.analysis.verdict import Cost, Shared, SlopeFrom, TokenSlope
from batchlab.core.batch import Unit
from batchlab.words.costs import describe_arrival, describe_cost, describe_more_seeds, describe_slope, describe_trade

COST = Cost(32, 1e-3, Interval(0.01, 0.004, 0.016, 4), Interval(0.06, 0.02, 0.09, 4), Comparing.PAIRED, 0.59, False, 1)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (COST, "6 % [2, 9] more tokens for 41 % less time per token: 37 % sooner"),
        (replace(COST, shared=Shared.TIME), "6 % [2, 9] more time"),
        (replace(COST, shared=Shared.TIME, tokens=Interval(-0.015, -0.04, 0.01)), "1.5 % [−1, 4] less time"),
        (
            replace(COST, tokens=Interval(0.06), loss=Interval(0.01)),
            "6 % more tokens for 41 % less time per token: 37 % sooner",
        ),
        (
            replace(COST, tokens=Interval(-0.015, -0.04, 0.01), time_per_token=1.5),
            "1.5 % [−1, 4] fewer tokens for 50 % more time per token: 48 % later",
        ),
        (replace(COST, tokens=Interval(0.5, 0.1, math.inf), time_per_token=None), "at least 10 % more tokens"),
        (
            replace(COST, tokens=Interval(5.6, 4.0, 7.0), time_per_token=1.0),
            "6.6 times [5, 8] the tokens",
        ),
        (
            replace(COST, tokens=Interval(5.6, 4.0, 7.0), time_per_token=2.0),
            "6.6 times [5, 8] the tokens for 2 times the time per token: 13 times as long",
        ),
        (
            replace(COST, tokens=Interval(5.6, 4.0, math.inf), time_per_token=0.9),
            "at least 5 times the tokens for 10 % less time per token: at least 4.5 times as long",
        ),
        (replace(COST, tokens=Interval(1.5, 0.2, 3.0), time_per_token=None), "2.5 times [1.2, 4] the tokens"),
        (
            replace(COST, tokens=Interval(0.69, 0.33, math.inf), time_per_token=0.5),
            "at least 33 % more tokens for 50 % less time per token: at most 34 % sooner",
        ),
        (
            replace(COST, tokens=Interval(0.69, 0.33, math.inf), time_per_token=0.9),
            "at least 33 % more tokens for 10 % less time per token: at least 20 % later",
        ),
        (
            replace(COST, tokens=Interval(0.2, -0.04, math.inf), time_per_token=None),
            "from 4 % fewer to an unknown number of more tokens",
        ),
        (
            replace(COST, shared=Shared.TIME, tokens=Interval(0.2, -0.04, math.inf)),
            "from 4 % less to an unknown amount of more time",
        ),
        (
            replace(COST, tokens=Interval(0.2), time_per_token=None),
            "a loss 0.01 higher [+0.004, +0.016] (the slope may be zero, so that is not told in tokens)",
        ),
        (replace(COST, tokens=None), "a loss 0.01 higher [+0.004, +0.016] for 41 % less time per token"),
        (
            replace(COST, tokens=Interval(math.inf, 0.5, math.inf)),
            "at least 50 % more tokens for 41 % less time per token",
        ),
        (
            replace(COST, tokens=Interval(math.inf)),
            "a loss 0.01 higher [+0.004, +0.016] (beyond the measured slope) for 41 % less time per token",
        ),
    ],
)
def test_a_trade_in_tokens_and_time(cost: Cost, text: str) -> None:
    assert describe_trade(cost, Unit.TOKENS) == text


def test_when_the_same_loss_is_reached() -> None:
    assert describe_arrival(COST) == "reaches the same loss 37 % sooner"
    much_later = replace(COST, tokens=Interval(5.6, 4.0, 7.0), time_per_token=1.0)
    assert describe_arrival(much_later) == "takes 6.6 times as long to the same loss"
    assert describe_arrival(replace(COST, time_per_token=None)) == ""


def test_samples_are_not_tokens() -> None:
    assert describe_cost(COST, Unit.SAMPLES) == "6 % [2, 9] more samples"


def test_what_would_settle_it() -> None:
    assert describe_more_seeds(COST) == "1 more seed at both would, if the difference is the one measured"
    assert "no affordable number" in describe_more_seeds(replace(COST, more_seeds=None))


@pytest.mark.parametrize("source", list(SlopeFrom))
def test_a_slope_names_its_runs(source: SlopeFrom) -> None:
    text = describe_slope(TokenSlope(Interval(0.2, 0.18, 0.22, 1), 2.0, source, 16, 1e-3), Unit.TOKENS)
    assert "0.200 [0.180, 0.220]" in text
    assert "n = " in text
