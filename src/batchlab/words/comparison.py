"""Two studies or tables side by side: the verdict first, then what differs."""

from __future__ import annotations

from collections.abc import Iterator

from batchlab.analysis.comparison import RESOLVED, Caveat, Comparison, Obstacle, Setting, Side, Verdict
from batchlab.analysis.values import Interval
from batchlab.core.format import (
    format_count,
    format_duration,
    format_learning_rate,
    format_loss,
    format_percent,
    format_percent_interval,
    format_plural,
)

SHOWN_SETTINGS = 20

LISTED_VALUES = 8
"""Values of a setting that are listed one by one; of more, the number and the ends are given."""


def describe_comparison(found: Comparison) -> tuple[str, ...]:
    """One line each: the verdict, both losses, caveats, and the settings that differ."""
    return describe_verdict(found), *describe_evidence(found), *_settings(found)


def describe_evidence(found: Comparison) -> tuple[str, ...]:
    """Both losses and what weakens the verdict, one line each; empty where the two cannot be compared."""
    if found.verdict is None:
        return ()
    caveats = (_caveat(caveat, found) for caveat in found.caveats)
    return _loss_of(found.first), _loss_of(found.second), *caveats


def describe_verdict(found: Comparison) -> str:
    """`B better by 0.31 % [0.12, 0.50] of the loss, worth 7 % [3, 12] fewer tokens.`"""
    first, second = found.first.name, found.second.name
    if found.verdict is None:
        return f"{second} cannot be compared with {first}, because {_obstacles(found)}."
    share = found.share or Interval(0.0)
    if found.verdict is Verdict.NOT_TESTED:
        side = "lower" if share.value < 0 else "higher"
        return (
            f"Not tested: the loss of {second} is {format_percent(abs(share.value))} {side} than that of {first}, but "
            "neither repeated a seed, so nothing says how much of that is noise."
        )
    if found.verdict is Verdict.WITHIN_NOISE:
        return f"Within noise: {second} against {first}, {_signed(share)} of the loss{_more_seeds(found)}."
    better = found.verdict is Verdict.BETTER
    name, size = (second, _negative(share)) if better else (first, share)
    worth = ""
    if found.tokens is not None:
        worth = f", worth {_fewer(found.tokens if better else _negative(found.tokens), found)}"
    return f"{name} better by {format_percent_interval(size)} of the loss{worth}."


def _negative(interval: Interval) -> Interval:
    low, high = (None if end is None else -end for end in (interval.low, interval.high))
    return Interval(-interval.value, high, low, interval.n)


def _signed(share: Interval) -> str:
    text = format_percent_interval(share)
    return text if share.value < 0 else f"+{text}"


def _more_seeds(found: Comparison) -> str:
    if found.more_seeds is None:
        return ""
    if found.more_seeds == 0:
        return f"; a difference of {format_percent(RESOLVED)} would probably have been seen"
    seeds = format_plural(found.more_seeds, "more seed")
    return f"; {seeds} at both would resolve {format_percent(RESOLVED)}"


def _fewer(fewer: Interval, found: Comparison) -> str:
    """`7 % [3, 12] fewer tokens`; `at least 25 %` where the slope was not measured as far as the other end."""
    what = "less time" if found.first.run_seconds is not None else f"fewer {_unit(found)}"
    if fewer.low is not None and fewer.low > 0 and fewer.high is None:
        return f"at least {format_percent(fewer.low)} {what}"
    return f"{format_percent_interval(fewer)} {what}"


def _unit(found: Comparison) -> str:
    unit = found.first.unit or found.second.unit
    return unit.value if unit is not None else "tokens"


def _obstacles(found: Comparison) -> str:
    return "; and ".join(_obstacle(obstacle, found.first, found.second) for obstacle in found.obstacles)


def _obstacle(obstacle: Obstacle, first: Side, second: Side) -> str:
    match obstacle:
        case Obstacle.NO_LOSS:
            without = [side.name for side in (first, second) if side.best is None]
            return f"{' and '.join(without)} has no run with a loss to judge by"
        case Obstacle.UNIT:
            return "one counts tokens and the other samples"
        case Obstacle.SEQUENCE_LENGTH:
            return (
                f"their sequences differ in length ({first.sequence_length:,} and {second.sequence_length:,}), and a "
                "loss depends on that"
            )
        case Obstacle.HELD_OUT:
            return "their losses are measured on different data"
        case Obstacle.BUDGET:
            budgets = f"{format_count(first.token_budget)} and {format_count(second.token_budget)}"
            return f"their runs have different budgets ({budgets})"
        case Obstacle.EQUAL_TIME:
            timed, other = (first, second) if first.run_seconds is not None else (second, first)
            return (
                f"{timed.name} gave every run the same time (--run-time) and {other.name} the same tokens; study both "
                "in one of the two ways"
            )
        case Obstacle.TIME:
            times = f"{format_duration(first.run_seconds)} and {format_duration(second.run_seconds)}"
            return f"their runs train for different times ({times})"


def _loss_of(side: Side) -> str:
    cell = side.quoted
    assert cell is not None
    seeds = format_plural(len(cell.losses), "confirmation seed" if side.confirmed else "seed")
    rate = f"batch {cell.global_batch_size:,}, LR {format_learning_rate(cell.learning_rate)}"
    return f"{side.name}: {format_loss(cell.quoted_loss)} at {rate} ({seeds})."


def _caveat(caveat: Caveat, found: Comparison) -> str:
    match caveat:
        case Caveat.CHOSEN:
            sides = [side.name for side in (found.first, found.second) if not side.confirmed]
            return f"Quoted by the seeds that chose the best cell, which flatters it: {' and '.join(sides)}."
        case Caveat.HELD_OUT_UNKNOWN:
            return "A table does not say what its loss is measured on; the comparison holds only for the same data."


def format_values(setting: Setting) -> tuple[str, str]:
    """A setting at both sides: `unset` where it is, and a long list as `1e-05 … 0.1 (97 values)`, unless the lists
    differ only inside."""
    whole = setting.first or "unset", setting.second or "unset"
    short = _shortened(whole[0]), _shortened(whole[1])
    return whole if short[0] == short[1] else short


def _shortened(text: str) -> str:
    values = text.split(", ")
    return text if len(values) <= LISTED_VALUES else f"{values[0]} … {values[-1]} ({len(values)} values)"


def _settings(found: Comparison) -> Iterator[str]:
    if not found.first.settings or not found.second.settings:
        return
    if not found.differ:
        yield "No setting differs."
        return
    yield f"{format_plural(len(found.differ), 'setting')} differ:" if len(found.differ) > 1 else "One setting differs:"
    for setting in found.differ[:SHOWN_SETTINGS]:
        first, second = format_values(setting)
        yield f"  {setting.name}: {first} | {second}"
    if len(found.differ) > SHOWN_SETTINGS:
        yield f"  and {len(found.differ) - SHOWN_SETTINGS} more"
