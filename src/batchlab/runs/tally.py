"""What a training run has summed up so far, and the rows and the result that are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchlab.core.protocols import MemoryReading, StepStats
from batchlab.core.record import MetricRow, NoGradientSamples, TrainResult
from batchlab.core.spec import TrainSpec
from batchlab.runs.divergence import (
    DivergenceWatch,
    require_finite,
    require_near_start,
    require_some_updates,
    window_steps,
)
from batchlab.runs.evaluation import Evaluation

FINAL_FRACTION = 0.1
"""The final training loss is the mean over this last share of the run: one step alone is mostly noise."""


@dataclass(slots=True)
class Sums:
    """Sums over single steps."""

    steps: int = 0
    loss: float = 0.0
    loss_max: float | None = None
    grad_norm: float = 0.0
    clipped: float = 0.0
    skipped: int = 0

    def add(self, step: StepStats) -> None:
        """Take in one step. One that was left out has a loss, and a gradient norm that means nothing."""
        loss = float(step.loss)
        self.steps += 1
        self.loss += loss
        self.loss_max = loss if self.loss_max is None else max(loss, self.loss_max)
        if step.skipped:
            self.skipped += 1
            return
        self.grad_norm += float(step.grad_norm)
        self.clipped += float(step.clipped)

    @property
    def mean_grad_norm(self) -> float | None:
        """None where every step was left out."""
        return self.grad_norm / (self.steps - self.skipped) if self.steps > self.skipped else None


@dataclass(slots=True)
class Tally:
    """Plain numbers, which go into the checkpoint, so that a resumed run ends with the same results."""

    watch: DivergenceWatch
    row: Sums = field(default_factory=Sums)  # since the last row of metrics
    tail: Sums = field(default_factory=Sums)  # over the last tenth of the run
    row_seconds: float = 0.0
    seconds: float = 0.0
    clipped: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    resumed: int = 0
    val_curve: list[tuple[int, float]] = field(default_factory=list)
    val_error: float | None = None
    val_draws_sd: float | None = None

    @classmethod
    def begin(cls, spec: TrainSpec) -> Tally:
        """The tally of a run that has done no step."""
        return cls(DivergenceWatch(window_steps(spec.layout.global_batch_size)))

    @classmethod
    def resume(cls, saved: Mapping[str, Any]) -> Tally:
        """The tally whose fields went into a checkpoint, by `asdict`."""
        parts = {"watch": DivergenceWatch(**saved["watch"]), "row": Sums(**saved["row"]), "tail": Sums(**saved["tail"])}
        tally = cls(**{**saved, **parts})
        tally.resumed += 1
        return tally

    def add(self, stats: list[StepStats], first_step: int, spec: TrainSpec) -> None:
        """Take in finished steps, the first of them number `first_step`, from 0. Raises Diverged."""
        tail_start = spec.steps - max(1, round(FINAL_FRACTION * spec.steps))
        for number, step in enumerate(stats, first_step):
            loss, grad_norm = float(step.loss), None if step.skipped else float(step.grad_norm)
            require_finite(number + 1, spec.steps, train_loss=loss, grad_norm=grad_norm)
            require_near_start(self.watch, number + 1, spec.steps, train_loss=loss, grad_norm=grad_norm)
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if step.skipped else 0
            require_some_updates(self.skipped_in_a_row, number + 1, spec.steps, train_loss=loss)
            self.row.add(step)
            self.skipped += bool(step.skipped)
            self.clipped += 0.0 if step.skipped else float(step.clipped)
            if number >= tail_start:
                self.tail.add(step)

    def add_seconds(self, seconds: float) -> None:
        """Take in the training time of the steps last added."""
        self.row_seconds += seconds
        self.seconds += seconds

    def add_evaluation(self, found: Evaluation, step: int, spec: TrainSpec) -> MetricRow:
        """Take in the held-out loss after `step` steps, as a row of metrics. Raises Diverged where it is not finite."""
        require_finite(step, spec.steps, val_loss=found.loss)
        tokens = step * spec.layout.tokens_per_step
        self.val_curve.append((tokens, found.loss))
        self.val_error, self.val_draws_sd = found.error, found.draws_sd
        return MetricRow(step=step, tokens=tokens, val_loss=found.loss)

    def take_row(self, spec: TrainSpec, step: int, learning_rate: float, memory: MemoryReading) -> MetricRow:
        """The row of metrics after `step` steps, with means since the previous one; the next row begins."""
        sums, seconds, tokens_per_step = self.row, self.row_seconds, spec.layout.tokens_per_step
        self.row, self.row_seconds = Sums(), 0.0
        return MetricRow(
            step=step,
            tokens=step * tokens_per_step,
            train_loss=sums.loss / sums.steps,
            train_loss_max=sums.loss_max,
            learning_rate=learning_rate,
            grad_norm=sums.mean_grad_norm,
            clipped_fraction=sums.clipped / sums.steps,
            skipped_steps=sums.skipped or None,
            step_seconds=seconds / sums.steps,
            tokens_per_second=sums.steps * tokens_per_step / seconds if seconds > 0 else None,
            in_use_bytes=memory.in_use_bytes,
            reserved_bytes=memory.reserved_bytes,
        )

    def result(
        self,
        spec: TrainSpec,
        step: int,
        memory: MemoryReading,
        *,
        epochs: float,
        repaired_lines: int,
        no_gradient_samples: tuple[NoGradientSamples, ...],
    ) -> TrainResult:
        """The run's result after `step` steps, with final values where that is all of them."""
        losses = [loss for _, loss in self.val_curve]
        finished = step == spec.steps and bool(self.tail.steps)
        tokens = step * spec.layout.tokens_per_step
        return TrainResult(
            steps=step,
            tokens=tokens,
            final_train_loss=self.tail.loss / self.tail.steps if finished else None,
            final_grad_norm=self.tail.mean_grad_norm if finished else None,
            val_loss=losses[-1] if finished and losses else None,
            val_error=self.val_error if finished else None,
            val_draws_sd=self.val_draws_sd if finished else None,
            best_val_loss=min(losses) if losses else None,
            val_curve=tuple(self.val_curve),
            clipped_fraction=self.clipped / max(1, step),
            skipped_steps=self.skipped,
            epochs=epochs,
            undertrained=spec.undertrained,
            seconds=self.seconds,
            tokens_per_second=tokens / self.seconds if self.seconds > 0 else None,
            peak_bytes=memory.peak_bytes,
            measured=memory.measured,
            peak_in_use_bytes=memory.peak_in_use_bytes,
            resumed=self.resumed,
            repaired_lines=repaired_lines,
            no_gradient_samples=no_gradient_samples,
        )
