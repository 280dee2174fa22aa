"""What a batch size costs against the best one, in extra tokens, in loss, and in time."""

from __future__ import annotations

import math

from batchlab.analysis.values import Interval
from batchlab.analysis.verdict import Cost, Shared, SlopeFrom, TokenSlope
from batchlab.core.batch import Unit
from batchlab.core.format import (
    format_interval,
    format_loss,
    format_percent,
    format_percent_interval,
    format_plural,
    format_signed,
)

SAME_TIME = 0.005
"""Share of the time below which two sizes take the same."""


def describe_cost(cost: Cost, unit: Unit) -> str:
    """`6 % [2, 9] more tokens`, or `more time` where runs had equal time; in loss where no slope is known."""
    of = "time" if cost.shared is Shared.TIME else unit.value
    if cost.tokens is None:
        return _loss(cost.loss)
    if math.isinf(cost.tokens.value):
        if cost.tokens.low is None or cost.tokens.low <= 0:
            return f"{_loss(cost.loss)} (beyond the measured slope)"
        return f"at least {format_percent(cost.tokens.low)} more {of}"
    if cost.tokens.value < 0:
        fewer = Interval(-cost.tokens.value, _negative(cost.tokens.high), _negative(cost.tokens.low))
        return f"{format_percent_interval(fewer)} {'less' if of == 'time' else 'fewer'} {of}"
    return f"{format_percent_interval(cost.tokens)} more {of}"


def _negative(limit: float | None) -> float | None:
    return None if limit is None else -limit


def _loss(loss: Interval) -> str:
    side = "higher" if loss.value >= 0 else "lower"
    if loss.low is None or loss.high is None:
        return f"a loss {format_loss(abs(loss.value))} {side}"
    return f"a loss {format_loss(abs(loss.value))} {side} [{format_signed(loss.low)}, {format_signed(loss.high)}]"


def describe_trade(cost: Cost, unit: Unit) -> str:
    """`6 % [2, 9] more tokens for 41 % less time per token: 37 % sooner`."""
    text = describe_cost(cost, unit)
    if cost.shared is Shared.TIME or cost.time_per_token is None or abs(cost.time_per_token - 1) < SAME_TIME:
        return text
    less = format_percent(abs(1 - cost.time_per_token))
    each = "less" if cost.time_per_token < 1 else "more"
    text += f" for {less} {each} time per {unit.value.removesuffix('s')}"
    return f"{text}: {describe_time(cost)}" if cost.time is not None and math.isfinite(cost.time) else text


def describe_time(cost: Cost) -> str:
    """`37 % sooner`, `12 % later` or `as soon`; empty where it is unknown."""
    if cost.time is None or not math.isfinite(cost.time):
        return ""
    if abs(cost.time - 1) < SAME_TIME:
        return "as soon"
    return f"{format_percent(abs(1 - cost.time))} {'sooner' if cost.time < 1 else 'later'}"


def describe_more_seeds(cost: Cost) -> str:
    """What would settle whether the cost is within the tolerance."""
    if cost.more_seeds is None:
        return "no affordable number of seeds would"
    differs = cost.loss.low is not None and cost.loss.low > 0
    if_so = "if the difference is the one measured" if differs else "if they are equally good"
    return f"{format_plural(cost.more_seeds, 'more seed')} at both would, {if_so}"


def describe_slope(slope: TokenSlope, unit: Unit) -> str:
    """Where token-equivalents come from; time-equivalents where runs had equal time."""
    drop = format_interval(slope.drop)
    of = "time" if slope.shared is Shared.TIME else unit.value
    less = f"{slope.factor:.3g} × {'less' if of == 'time' else 'fewer'} {of}"
    where = f"batch {slope.global_batch_size:,}"
    match slope.source:
        case SlopeFrom.RUN:
            return (
                f"Costs in {of} rest on n = {format_plural(slope.drop.n, 'run')} of {where} with {less}, whose "
                f"schedule ended there and whose loss was {drop} higher"
            )
        case SlopeFrom.CURVE:
            return (
                f"Costs in {of} rest on the evaluations of {where} after {less} (n = "
                f"{format_plural(slope.drop.n, 'run')}), where the loss was {drop} higher"
            )
        case SlopeFrom.PUBLISHED:
            return (
                f"Costs in {of} rest on published slopes of language models (n = 0 runs here), by which half "
                f"the {of} would cost {drop}"
            )
