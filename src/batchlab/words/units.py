"""The terms that depend on what a study counts: tokens in sequences, or samples."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.analysis.findings import Findings
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.format import batch_items, format_batch


@dataclass(frozen=True, slots=True)
class Units:
    """How one study counts."""

    unit: Unit
    sequence_length: int
    metric: str = ""  # what batch sizes are judged by where that is not the loss

    @classmethod
    def of(cls, findings: Findings) -> Units:
        metric = findings.experiment.evaluation.judged_by
        return cls(findings.experiment.unit, findings.task_info.sequence_length, "" if metric is None else metric.title)

    @property
    def name(self) -> str:
        """What budgets are counted in: `tokens` or `samples`."""
        return self.unit.value

    @property
    def singular(self) -> str:
        """`token` or `sample`."""
        return self.name.removesuffix("s")

    @property
    def items(self) -> str:
        """What a batch is counted in: `sequences` where one holds several tokens, else `samples`."""
        return batch_items(self.unit, self.sequence_length)

    @property
    def judged(self) -> str:
        """What batch sizes are judged by: `validation loss`, or `1 − accuracy`."""
        return self.metric or "validation loss"

    def named(self, loss: str) -> str:
        """`1.482 [1.474, 1.490]`, or with the metric's name before it."""
        return f"{self.metric} {loss}" if self.metric else loss

    @property
    def loss_axis(self) -> str:
        return self.metric or f"validation loss ({self._loss_of})"

    @property
    def train_loss_axis(self) -> str:
        return f"training loss ({self._loss_of})"

    @property
    def _loss_of(self) -> str:
        return "nats per token" if self.unit is Unit.TOKENS else "mean per sample"

    @property
    def batch_axis(self) -> str:
        return f"global batch size ({self.items})"

    def batch(self, size: int) -> str:
        """`32 sequences`."""
        return format_batch(size, self.unit, self.sequence_length)

    def step_size(self, layout: BatchLayout) -> str:
        """`32 sequences (8,192 tokens) per step`."""
        text = self.batch(layout.global_batch_size)
        if self.items == "sequences":
            text += f" ({layout.tokens_per_step:,} {self.name})"
        return f"{text} per step"
