"""What `batchlab capacity` is about to do and how long that takes, before it begins and again when it knows more."""

from __future__ import annotations

from batchlab.core.format import format_bytes, format_duration
from batchlab.search.probe_time import (
    FEWEST_PROBES,
    MOST_PROBES,
    VERIFYING_STEPS,
    ProbeTime,
    Seconds,
)

_GIGA = 1e9

_QUICK, _MANY = 1.0, 1000
"""Where a sample takes fewer seconds, the time of so many samples is told."""


def describe_search(time: ProbeTime | None, accumulation: int, *, runs: bool, spares_time: bool) -> str:
    """`traces, then 2 to 4 probes …; 0.3 s to 11 s per sample of a probe …`, before anything is known of sizes.

    runs: False for another card, for which nothing is run. spares_time: a far too slow size is not run.
    """
    if not runs:
        return "traces alone, which run nothing: seconds for a small model, up to minutes for a large one"
    text = (
        f"traces, which run nothing, then usually {FEWEST_PROBES} to {MOST_PROBES} probes of {VERIFYING_STEPS} "
        "whole steps, each in a process of its own"
    )
    if time is None:
        return f"{text}; how long they take is known after the first one"
    samples = _MANY if time.verifying(1, accumulation).high < _QUICK else 1
    each, per = time.verifying(samples, accumulation), "sample" if samples == 1 else f"{samples:,} samples"
    text += f"; about {_range(each)} per {per} of a probe ({_basis(time)}), whose size the traces tell"
    if spares_time:
        text += ". A probe that would take minutes is replaced by a smaller one (--verify-largest runs it)"
    return text


def describe_prediction(size: int, limit_bytes: int, time: ProbeTime | None, accumulation: int) -> str:
    """What the traces say, before anything is run, and how long that will take."""
    text = f"the trace predicts micro-batch {size:,} within {format_bytes(limit_bytes)}; now it is run"
    return text if time is None else f"{text}: about {_range(time.search(size, accumulation))} ({_basis(time)})"


def describe_remaining_probe(size: int, time: ProbeTime, accumulation: int) -> str:
    """After the first probe: how long the one takes that verifies the predicted size."""
    return f"a probe of micro-batch {size:,} takes about {_range(time.verifying(size, accumulation))} (as measured)"


def _basis(time: ProbeTime) -> str:
    if time.assumed is None:
        return "as measured"
    low, high = (f"{each / _GIGA:,.3g}" for each in (time.assumed.low, time.assumed.high))
    return f"6 × parameters × tokens, at an assumed {low} to {high} gigaFLOP/s"


def _range(seconds: Seconds) -> str:
    low, high = format_duration(seconds.low), format_duration(seconds.high)
    return low if low == high else f"{low} to {high}"
