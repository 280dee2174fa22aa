"""What a batch size costs against the best one, in extra tokens, in loss, and in time."""

from __future__ import annotations

import math

from batchlab.analysis.values import Interval
from batchlab.analysis.verdict import Cost, Shared, SlopeFrom, TokenSlope
from batchlab.core.batch import Unit
from batchlab.core.format import (
    MANY_TIMES,
    format_interval,
    format_loss,
    format_percent,
    format_percent_interval,
    format_plural,
    format_signed,
    format_times,
    format_times_interval,
)

SAME_TIME = 0.005
"""Share of the time below which two sizes take the same."""


def describe_cost(cost: Cost, unit: Unit) -> str:
    """`6 % [2, 9] more tokens`, or `more time` where runs had equal time; in loss where no slope is known."""
    if cost.tokens is None:
        return _loss(cost.loss)
    if math.isinf(cost.tokens.value) and (cost.tokens.low is None or cost.tokens.low <= 0):
        return f"{_loss(cost.loss)} (beyond the measured slope)"
    if cost.tokens.low is None and cost.loss.low is not None:
        return f"{_loss(cost.loss)} (the slope may be zero, so that is not told in {shared_term(cost.shared, unit)})"
    return describe_extra(cost.tokens, shared_term(cost.shared, unit))


def shared_term(shared: Shared, unit: Unit) -> str:
    """What costs are shares of: `time` where all runs had equal time, else `tokens` or `samples`."""
    return "time" if shared is Shared.TIME else unit.value


def describe_extra(extra: Interval, of: str) -> str:
    """`6 % [2, 9] more tokens`, `1.5 % [−1, 4] fewer tokens`, and from twice as many up `8 times [6, 10] the tokens`.

    `at least 33 % more tokens` where the interval has no upper end, because it lies beyond what the slope was measured
    over: 69 % [33, 597] would tell numbers that nothing measured. With a lower end below zero, `from 4 % fewer to an
    unknown number of more tokens`.
    """
    low, high = extra.low, extra.high
    less = "less" if of == "time" else "fewer"
    if low is not None and (high is None or math.isinf(high)):
        if low > 0:
            return f"at least {_more(low, of)}"
        unknown = "an unknown amount of more time" if of == "time" else f"an unknown number of more {of}"
        return f"from {format_percent(-low)} {less} to {unknown}"
    if extra.value < 0:
        return f"{format_percent_interval(Interval(-extra.value, _negative(high), _negative(low)))} {less} {of}"
    if 1 + extra.value < MANY_TIMES or not math.isfinite(extra.value):
        return f"{format_percent_interval(extra)} more {of}"
    least, most = (None if end is None else max(0.0, 1 + end) for end in (low, high))
    return f"{format_times_interval(Interval(1 + extra.value, least, most))} the {of}"


def _more(extra: float, of: str) -> str:
    return f"{format_percent(extra)} more {of}" if 1 + extra < MANY_TIMES else f"{format_times(1 + extra)} the {of}"


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
    text += f" for {_time_per_token(cost.time_per_token)} per {unit.value.removesuffix('s')}"
    when = describe_time(cost)
    return f"{text}: {when}" if when else text


def _time_per_token(ratio: float) -> str:
    if ratio >= MANY_TIMES:
        return f"{format_times(ratio)} the time"
    return f"{format_percent(abs(1 - ratio))} {'less' if ratio < 1 else 'more'} time"


def describe_time(cost: Cost) -> str:
    """`37 % sooner`, `12 % later`, `6.6 times as long` or `as soon`; empty where it is unknown.

    `at most 20 % sooner` or `at least 8 % later` where only the least that it costs in tokens is known.
    """
    time, bounded = cost.time, False
    if time is None:
        return ""
    tokens = cost.tokens
    if tokens is not None and tokens.low is not None and (tokens.high is None or math.isinf(tokens.high)):
        time, bounded = time * (1 + tokens.low) / (1 + tokens.value) if math.isfinite(time) else math.inf, True
    if not math.isfinite(time):
        return ""
    if abs(time - 1) < SAME_TIME:
        return "at best as soon" if bounded else "as soon"
    text = f"{format_percent(abs(1 - time))} {'sooner' if time < 1 else 'later'}"
    if time >= MANY_TIMES:
        text = f"{format_times(time)} as long"
    return text if not bounded else f"at {'most' if time < 1 else 'least'} {text}"


def describe_arrival(cost: Cost) -> str:
    """`reaches the same loss 12 % later`, `takes 6.6 times as long to the same loss`; empty where it is unknown."""
    when = describe_time(cost)
    if when.endswith("as long"):
        return f"takes {when} to the same loss"
    return f"reaches the same loss {when}" if when else ""


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
    of = shared_term(slope.shared, unit)
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
