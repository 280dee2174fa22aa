"""Numbers and settings as a reader meets them: one spelling each, in the study's own unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Interval
from batchlab.core.batch import BatchLayout, Unit, format_count
from batchlab.core.experiment import TaskReference

NONE = "–"


@dataclass(frozen=True, slots=True)
class Words:
    """The words that depend on what the study counts: tokens in sequences, or samples."""

    unit: Unit
    sequence_length: int

    @classmethod
    def of(cls, findings: Findings) -> Words:
        return cls(findings.experiment.unit, findings.task_info.sequence_length)

    @property
    def units(self) -> str:
        """What budgets are counted in: `tokens` or `samples`."""
        return self.unit.value

    @property
    def items(self) -> str:
        """What a batch is made of: `sequences` where one holds several tokens, else `samples`."""
        return "sequences" if self.unit is Unit.TOKENS and self.sequence_length > 1 else "samples"

    @property
    def loss_axis(self) -> str:
        return "validation loss (nats per token)" if self.unit is Unit.TOKENS else "validation loss (mean per sample)"

    @property
    def train_loss_axis(self) -> str:
        return "training loss (nats per token)" if self.unit is Unit.TOKENS else "training loss (mean per sample)"

    @property
    def batch_axis(self) -> str:
        return f"global batch size ({self.items})"

    def step_size(self, layout: BatchLayout) -> str:
        """`32 sequences (8,192 tokens) per step`."""
        text = f"{layout.global_batch_size:,} {self.items}"
        if self.items == "sequences":
            text += f" ({layout.tokens_per_step:,} {self.units})"
        return f"{text} per step"


def layout_text(layout: BatchLayout) -> str:
    """`16 × 2`, and `16 × 2 × 4 devices` where there are several."""
    text = f"{layout.micro_batch_size:,} × {layout.grad_accum_steps:,}"
    return text if layout.data_parallel_size == 1 else f"{text} × {layout.data_parallel_size:,} devices"


def learning_rate(value: float | None) -> str:
    """`1.0e-3`; at most three digits, so that 7.0711e-4 reads 7.07e-4."""
    if value is None or not math.isfinite(value):
        return NONE
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    mantissa = mantissa[:-1] if mantissa.endswith("0") else mantissa
    return f"{mantissa}e{int(exponent)}"


def loss(value: float | None) -> str:
    """Three decimals; small losses keep three digits."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return str(value)
    return f"{value:.3f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"


def interval(estimate: Interval | None) -> str:
    """`1.482 [1.474, 1.490]`; without a measured spread only the value."""
    if estimate is None:
        return NONE
    if estimate.low is None or estimate.high is None:
        return loss(estimate.value)
    return f"{loss(estimate.value)} [{loss(estimate.low)}, {loss(estimate.high)}]"


def signed(value: float | None) -> str:
    return NONE if value is None else f"{value:+.3f}".replace("-", "−")


def duration(hours: float | None) -> str:
    """Hours for people: seconds and minutes where hours would read 0.00."""
    if hours is None or not math.isfinite(hours):
        return NONE
    if hours * 3600 < 90:
        return f"{hours * 3600:.3g} s"
    if hours * 60 < 90:
        return f"{hours * 60:.3g} min"
    return f"{hours:.3g} h" if hours < 1000 else f"{hours:,.0f} h"


def time_scale(longest_hours: float) -> tuple[float, str]:
    """Factor from hours and name of the unit in which an axis up to `longest_hours` reads well."""
    if longest_hours * 60 < 2:
        return 3600.0, "seconds"
    return (60.0, "minutes") if longest_hours < 2 else (1.0, "hours")


def byte_scale(largest: float) -> tuple[float, str]:
    """Factor from bytes and unit in which an axis up to `largest` reads well."""
    return (2.0**-30, "GiB") if largest >= 0.5 * 2**30 else (2.0**-20, "MiB")


def count(value: float | None) -> str:
    return NONE if value is None else format_count(value)


def plural(number: int, noun: str, many: str = "") -> str:
    """`1 run`, `3 runs`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def listing(values: Sequence[object]) -> str:
    """`8, 16 and 32`."""
    texts = [f"{v:,}" if isinstance(v, int) else str(v) for v in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""


def sentence(text: str) -> str:
    """The text as a sentence: a capital first, a full stop last."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def task_name(reference: TaskReference) -> str:
    """The task without the folders of the machine it was studied on."""
    if reference.kind == "recipe":
        return f"recipe {reference.target}"
    target = PurePath(reference.target).name if reference.kind == "file" else reference.target
    return f"{target}:{reference.attribute}"


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None, width: int = 24) -> str:
    """Unicode bars between `low` and `high` (default: the values' own range); gaps where a value is not finite."""
    picked = list(values)
    if len(picked) > width:
        picked = [picked[round(i * (len(picked) - 1) / (width - 1))] for i in range(width)]
    finite = [v for v in picked if math.isfinite(v)]
    if not finite:
        return ""
    low = min(finite) if low is None else low
    high = max(finite) if high is None else high
    span = high - low

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return " "
        share = (min(max(value, low), high) - low) / span if span > 0 else 0.5
        return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]

    return "".join(bar(v) for v in picked)
