"""Numbers as people read them: one spelling per quantity, so that the terminal, the report and the plan agree.

A quantity that was not measured is `NONE`. Records hold bytes, seconds and nats; people are shown GiB (2³⁰), hours
and tokens/s.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Protocol

from batchlab.core.batch import BatchLayout, Unit

NONE = "–"


class Estimate(Protocol):
    """A value with an interval, either end of which may be unknown."""

    @property
    def value(self) -> float: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def format_bytes(count: float) -> str:
    """`1.50 GiB`; MiB below a tenth of a GiB."""
    if abs(count) >= 0.1 * 2**30:
        return f"{count / 2**30:.2f} GiB"
    return f"{count / 2**20:.1f} MiB"


def format_count(count: float | None) -> str:
    """`8,192`; from 100,000 up `512k`, `51.2M`, `1.3B`, `2.1T`."""
    if count is None:
        return NONE
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(count) >= factor:
            return f"{count / factor:.3g}{suffix}"
    if abs(count) >= 100_000:
        return f"{count / 1e3:.3g}k"
    return f"{count:,.0f}"


def format_size(size: float) -> str:
    """A batch size that need not be whole: `5.66`, `41.2`; from 100 up as `format_count`."""
    return f"{size:.3g}" if abs(size) < 100 else format_count(size)


def format_learning_rate(learning_rate: float | None) -> str:
    """`1.0e-3`, `7.07e-4`, and plainly `0.4` or `1.3` from 0.1 up: at most three digits."""
    if learning_rate is None or not math.isfinite(learning_rate):
        return NONE
    if 0.1 <= learning_rate < 1000:
        return f"{learning_rate:.3g}"
    mantissa, _, exponent = f"{learning_rate:.2e}".partition("e")
    return f"{mantissa.removesuffix('0')}e{int(exponent)}"


LISTED_RATES = 16
"""Learning rates that are listed one by one; of more, the number and the ends are given."""


def format_learning_rates(learning_rates: Collection[float]) -> str:
    """`1.0e-3, 2.0e-3 and 4.0e-3`, or `97 between 0.1 and 18.9`; ascending. Empty for none."""
    texts = [format_learning_rate(rate) for rate in sorted(learning_rates)]
    if len(texts) > LISTED_RATES:
        return f"{len(texts):,} between {texts[0]} and {texts[-1]}"
    return format_list(texts)


def format_loss(loss: float | None) -> str:
    """Three decimals; three significant digits below 0.1."""
    if loss is None:
        return NONE
    if not math.isfinite(loss):
        return str(loss)
    return f"{loss:.3f}" if abs(loss) >= 0.1 or loss == 0 else f"{loss:.3g}"


def format_interval(estimate: Estimate | None) -> str:
    """A loss with its interval, `1.482 [1.474, 1.490]`; only the value where no spread was measured."""
    if estimate is None:
        return NONE
    if estimate.low is None or estimate.high is None:
        return format_loss(estimate.value)
    return f"{format_loss(estimate.value)} [{format_loss(estimate.low)}, {format_loss(estimate.high)}]"


def format_signed(difference: float | None) -> str:
    """`+0.012`, `−0.012`."""
    return NONE if difference is None else f"{difference:+.3f}".replace("-", "−")


def format_percent(share: float) -> str:
    """`41 %`; two digits below 10 %, `0.4 %`; `−3 %`, `∞ %`."""
    return f"{_percent(share)} %"


def format_percents(shares: Sequence[float]) -> str:
    """`1 %, 5 % and 10 %`."""
    return format_list([format_percent(share) for share in shares])


def format_percent_interval(estimate: Estimate) -> str:
    """`6 % [2, 9]`; only the value where neither limit is known, and `∞` for one that is not."""
    if estimate.low is None and estimate.high is None:
        return format_percent(estimate.value)
    low = _percent(-math.inf if estimate.low is None else estimate.low)
    high = _percent(math.inf if estimate.high is None else estimate.high)
    return f"{format_percent(estimate.value)} [{low}, {high}]"


MANY_TIMES = 2.0
"""From this ratio on, a ratio is easier to read than a percentage above it: `6.6 times`, not `560 % more`."""


def format_times(ratio: float) -> str:
    """`6.6 times`, `12 times`."""
    return f"{_ratio(ratio)} times"


def format_times_interval(estimate: Estimate) -> str:
    """`8 times [6, 10]`; only the value where neither limit is known, and `∞` for one that is not."""
    if estimate.low is None and estimate.high is None:
        return format_times(estimate.value)
    low = _ratio(0.0 if estimate.low is None else estimate.low)
    high = _ratio(math.inf if estimate.high is None else estimate.high)
    return f"{format_times(estimate.value)} [{low}, {high}]"


def _ratio(ratio: float) -> str:
    if not math.isfinite(ratio):
        return "∞"
    return f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.2g}"


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "∞" if share > 0 else "−∞"
    percent = 100 * share
    text = f"{percent:.0f}" if abs(percent) >= 10 or round(percent, 1) == round(percent) else f"{percent:.1f}"
    return "0" if float(text) == 0 else text.replace("-", "−")


def format_throughput(tokens_per_second: float, unit: Unit) -> str:
    """`60.2k tok/s`, `310 samples/s`."""
    text = f"{tokens_per_second / 1000:.3g}k" if tokens_per_second >= 1000 else f"{tokens_per_second:.3g}"
    if tokens_per_second >= 1_000_000:
        text = format_count(tokens_per_second)
    return f"{text} {'tok/s' if unit is Unit.TOKENS else 'samples/s'}"


def format_duration(seconds: float | None) -> str:
    """`0.42 s`, `8 s`, `30 min`, `3 min 20 s`, `2 h 05 min`; hours alone from 100 h up."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    whole = round(seconds)
    if 0 < seconds < 1:
        return f"{seconds:.2g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60:02d} s" if whole % 60 else "")
    if whole < 360_000:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60:02d} min" if whole % 3600 >= 60 else "")
    return f"{whole / 3600:,.0f} h"


def format_milliseconds(seconds: float) -> str:
    """`0.042 ms`, `3.14 ms`, `1,250 ms`: three digits, for what is compared within a step."""
    milliseconds = 1000 * round(seconds, 9) + 0.0  # below a nanosecond there is only rounding, and no negative zero
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"


def format_hours(hours: float | None) -> str:
    """A number of hours as `format_duration` shows it."""
    return format_duration(None if hours is None else 3600 * hours)


def format_moment(seconds: float) -> str:
    """`2026-11-22 12:03 UTC`, from seconds since 1970."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def format_flops(flops: float) -> str:
    """`491 petaFLOP`."""
    for factor, name in ((1e18, "exaFLOP"), (1e15, "petaFLOP"), (1e12, "teraFLOP")):
        if flops >= factor:
            return f"{flops / factor:.3g} {name}"
    return f"{flops / 1e9:.3g} gigaFLOP"


def format_list(values: Sequence[object]) -> str:
    """`8, 16 and 32`."""
    texts = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def format_plural(count: int, noun: str, plural: str = "") -> str:
    """`1 run`, `3 runs`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def batch_items(unit: Unit, sequence_length: int) -> str:
    """What a batch is counted in: `sequences` where one holds several tokens, else `samples`."""
    return "sequences" if unit is Unit.TOKENS and sequence_length > 1 else "samples"


def format_batch(size: int, unit: Unit, sequence_length: int) -> str:
    """`32 sequences`, `1 sequence`, `8 samples`."""
    return format_plural(size, batch_items(unit, sequence_length).removesuffix("s"))


def format_layout(layout: BatchLayout, unit: Unit) -> str:
    """`micro-batch 32 × accum 1 × 1 device = 32 sequences (8,192 tokens/step)`."""
    items = batch_items(unit, layout.sequence_length)
    per_step = f" ({layout.tokens_per_step:,} tokens/step)" if items == "sequences" else ""
    product = layout.micro_batch_size * layout.grad_accum_steps * layout.data_parallel_size
    equals = "=" if product == layout.global_batch_size else "→"
    return (
        f"micro-batch {layout.micro_batch_size:,} × accum {layout.grad_accum_steps:,} × "
        f"{format_plural(layout.data_parallel_size, 'device')} {equals} "
        f"{format_batch(layout.global_batch_size, unit, layout.sequence_length)}{per_step}"
    )


def format_split(layout: BatchLayout) -> str:
    """Micro-batch × accumulation, `16 × 2`; `16 × 2 × 4 devices` on several."""
    text = f"{layout.micro_batch_size:,} × {layout.grad_accum_steps:,}"
    return text if layout.data_parallel_size == 1 else f"{text} × {layout.data_parallel_size:,} devices"
