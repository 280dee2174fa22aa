"""Sentences about warm-up where several were tried: the best of each batch size, what the others cost, the trend."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.warmups import LargerWantLonger, SizeWarmups, TriedWarmup, WarmupFinding
from batchlab.analysis.values import Comparing, Interval
from batchlab.core.format import format_list, format_percent, format_plural, format_signed

TRIED_AGAIN = " (cells that diverged, tried again)"

COMPARED = {
    Comparing.PAIRED: "paired",
    Comparing.POOLED: "pooled spread",
    Comparing.WELCH: "Welch",
}


def warmup_conclusions(found: Findings) -> list[str]:
    """The best warm-up by batch size, the others at the recommended size, and the trend; empty for a single one.

    Further warm-ups of cells that diverged and were tried again are told elsewhere (words/retries.py).
    """
    warmups = found.warmups
    if warmups is None or (found.retried and len(found.experiment.warmup_fractions) == 1):
        return []
    size = warmups.at(found.recommended.layout.global_batch_size) if found.recommended else None
    return [_best(warmups), *_told_apart(warmups), *(_others(size) if size else []), *_trend(warmups)]


def format_taken(warmups: WarmupFinding) -> str:
    """`1 % of the run at batch 8 and 16, 5 % at batch 32`."""
    by_share: dict[float, list[int]] = {}
    for size in _with_loss(warmups):
        by_share.setdefault(size.taken, []).append(size.global_batch_size)
    texts = [f"{format_percent(share)} at batch {format_list(sizes)}" for share, sizes in sorted(by_share.items())]
    return ", ".join(texts).replace(" % at", " % of the run at", 1)


def _with_loss(warmups: WarmupFinding) -> list[SizeWarmups]:
    return [size for size in warmups.sizes if any(each.best for each in size.tried)]


def _best(warmups: WarmupFinding) -> str:
    judged = _with_loss(warmups)
    if not judged:
        return "No warm-up has a finite loss."
    most = format_plural(max(len(size.tried) for size in judged), "warm-up")
    text = f"Of {most}, each at its own best learning rate, the best is {format_taken(warmups)}"
    ends = [size.global_batch_size for size in judged if _at_an_end(size)]
    if ends:
        text += f"; at batch {format_list(ends)} it is the shortest or longest that was tried"
    return f"{text} (n = {format_plural(len(judged), 'size')})."


def _at_an_end(size: SizeWarmups) -> bool:
    return len(size.tried) > 1 and size.taken in (size.tried[0].warmup_fraction, size.tried[-1].warmup_fraction)


def _told_apart(warmups: WarmupFinding) -> list[str]:
    compared = [size for size in _with_loss(warmups) if any(each.cost for each in size.tried)]
    if not compared:
        return ["No seed was repeated (n = 1), so no difference between warm-ups is told from noise."]
    apart = [size.global_batch_size for size in compared if size.told_apart]
    if not apart:
        return [f"Noise does not tell it from the other warm-ups at any of n = {format_plural(len(compared), 'size')}."]
    where = "every batch size" if len(apart) == len(compared) else f"batch {format_list(apart)} only"
    return [f"It is told from all others by 95 % intervals at {where} (n = {format_plural(len(compared), 'size')})."]


def _others(size: SizeWarmups) -> list[str]:
    """What the warm-ups that were not taken cost at one batch size."""
    others = [each for each in size.tried if each.warmup_fraction != size.taken]
    costs = "; ".join(f"{format_percent(each.warmup_fraction)} {_cost(each, size)}" for each in others)
    return [f"At batch {size.global_batch_size:,}, against a warm-up of {format_percent(size.taken)}: {costs}."]


def _cost(tried: TriedWarmup, size: SizeWarmups) -> str:
    if tried.best is None:
        return "has no finite loss"
    few = ", undertrained" if tried.undertrained else ""
    if tried.cost is None or tried.by is None:
        taken = next(each.best for each in size.tried if each.warmup_fraction == size.taken)
        above = (tried.best.quoted_loss or 0.0) - (taken.quoted_loss or 0.0 if taken else 0.0)
        return f"ends {format_signed(above)} (n = 1, not tested{few})"
    return f"ends {format_change(tried.cost)} ({COMPARED[tried.by]}, n = {format_plural(tried.cost.n, 'seed')}{few})"


def format_change(change: Interval) -> str:
    """`+0.012 [+0.004, +0.020]`."""
    if change.low is None or change.high is None:
        return format_signed(change.value)
    return f"{format_signed(change.value)} [{format_signed(change.low)}, {format_signed(change.high)}]"


def _trend(warmups: WarmupFinding) -> list[str]:
    if len(_with_loss(warmups)) < 2:
        return []
    trend = warmups.trend
    if trend is None or trend.gain.low is None or trend.gain.high is None:
        return ["Whether larger batches want a longer warm-up cannot be told: no seed was repeated, or runs failed."]
    return [f"{_verdict(trend)}: {_gain(trend)}."]


def _verdict(trend: LargerWantLonger) -> str:
    low, high = trend.gain.low or 0.0, trend.gain.high or 0.0
    if low > 0:
        return "Larger batches gain more by a longer warm-up"
    if high < 0:
        return "Larger batches gain less by a longer warm-up"
    return "Whether larger batches want a longer warm-up cannot be told from these runs"


def _gain(trend: LargerWantLonger) -> str:
    gain = trend.gain
    assert gain.low is not None
    assert gain.high is not None
    change = format_change(Interval(-gain.value, -gain.high, -gain.low))
    return (
        f"from a warm-up of {format_percent(trend.short)} to {format_percent(trend.long)}, the loss of batch "
        f"{trend.largest:,} changes by {change} relative to that of batch {trend.smallest:,} (95 % interval, n = "
        f"{format_plural(gain.n, 'seed')} at the least)"
    )
