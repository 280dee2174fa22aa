"""Numbers and settings as a reader meets them: one spelling each, in the study's own unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import TaskReference


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


def time_scale(longest_hours: float) -> tuple[float, str]:
    """Factor from hours and name of the unit in which an axis up to `longest_hours` reads well."""
    if longest_hours * 60 < 2:
        return 3600.0, "seconds"
    return (60.0, "minutes") if longest_hours < 2 else (1.0, "hours")


def byte_scale(largest: float) -> tuple[float, str]:
    """Factor from bytes and unit in which an axis up to `largest` reads well."""
    return (2.0**-30, "GiB") if largest >= 0.5 * 2**30 else (2.0**-20, "MiB")


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
