"""What another trainer's training run has logged so far, and the rows and the result that are made of it.

`runs.tally` does the same for batchlab's own loop, which knows every step. A trainer logs means over several steps, and
its steps may differ in size, so samples are counted here and steps are not multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from batchlab.core.errors import RunFailure
from batchlab.core.protocols import MemoryReading
from batchlab.core.record import MetricRow, TrainResult
from batchlab.core.spec import TrainSpec
from batchlab.runs.divergence import DivergenceWatch, require_finite, require_near_start, window_steps
from batchlab.runs.evaluation import Evaluation
from batchlab.runs.tally import FINAL_FRACTION


class StoppedEarly(RunFailure):
    """A trainer ended its run by itself before the budget, as one of its callbacks may have asked."""


@dataclass(frozen=True, slots=True)
class Logged:
    """What a trainer logged after `step` steps: means over the `steps` steps since the last time."""

    step: int
    steps: int
    samples: int
    seconds: float
    train_loss: float
    grad_norm: float | None
    learning_rate: float


@dataclass(slots=True)
class Course:
    """Plain numbers, which go into the checkpoint, so that a resumed run ends with the same results.

    total_steps: of the whole run. grad_clip: the norm above which gradients are clipped.
    """

    watch: DivergenceWatch
    total_steps: int
    sequence_length: int
    grad_clip: float | None
    samples: int = 0
    seconds: float = 0.0
    clipped: int = 0
    tail_steps: int = 0
    tail_loss: float = 0.0
    grad_norm: float | None = None
    resumed: int = 0
    val_curve: list[tuple[int, float]] = field(default_factory=list)
    val_error: float | None = None

    @classmethod
    def begin(cls, spec: TrainSpec, total_steps: int, grad_clip: float | None) -> Course:
        """The course of a run that has done no step."""
        watch = DivergenceWatch(window_steps(spec.layout.global_batch_size))
        return cls(watch, total_steps, spec.workload.sequence_length, grad_clip)

    @classmethod
    def resume(cls, saved: Mapping[str, Any]) -> Course:
        """The course whose `saved()` went into a checkpoint."""
        curve = [(int(tokens), float(loss)) for tokens, loss in saved["val_curve"]]
        course = cls(**{**saved, "watch": DivergenceWatch(**saved["watch"]), "val_curve": curve})
        course.resumed += 1
        return course

    def saved(self) -> dict[str, Any]:
        """Plain numbers for `resume`."""
        return asdict(self)

    def log(self, logged: Logged, memory: MemoryReading) -> MetricRow:
        """Take in what was logged, as a row of metrics. Raises Diverged."""
        loss, norm = logged.train_loss, logged.grad_norm
        require_finite(logged.step, self.total_steps, train_loss=loss, grad_norm=norm)
        for _ in range(logged.steps):
            require_near_start(
                self.watch, logged.step, self.total_steps, train_loss=loss, grad_norm=norm if norm is not None else 0.0
            )
        new = (logged.samples - self.samples) * self.sequence_length
        self.samples, self.grad_norm = logged.samples, norm
        self.seconds += logged.seconds
        over = norm is not None and self.grad_clip is not None and norm > self.grad_clip
        self.clipped += logged.steps if over else 0
        if logged.step > self.tail_begins:
            self.tail_steps += logged.steps
            self.tail_loss += loss * logged.steps
        return MetricRow(
            step=logged.step,
            tokens=self.tokens,
            train_loss=loss,
            learning_rate=logged.learning_rate,
            grad_norm=norm,
            clipped_fraction=float(over) if self.grad_clip is not None else None,
            step_seconds=logged.seconds / logged.steps,
            tokens_per_second=new / logged.seconds if logged.seconds > 0 else None,
            in_use_bytes=memory.in_use_bytes,
            reserved_bytes=memory.reserved_bytes,
        )

    @property
    def tail_begins(self) -> int:
        """The last step before those whose mean loss is the final training loss."""
        return self.total_steps - max(1, round(FINAL_FRACTION * self.total_steps))

    @property
    def tokens(self) -> int:
        """Tokens seen by the last step that was logged."""
        return self.samples * self.sequence_length

    def evaluated(self, found: Evaluation, step: int) -> MetricRow:
        """Take in the held-out loss after the last step that was logged. Raises Diverged where it is not finite."""
        require_finite(step, self.total_steps, val_loss=found.loss)
        self.val_curve.append((self.tokens, found.loss))
        self.val_error = found.error
        return MetricRow(step=step, tokens=self.tokens, val_loss=found.loss)

    def result(
        self, spec: TrainSpec, step: int, train_samples: int, memory: MemoryReading, repaired_lines: int
    ) -> TrainResult:
        """The run's result after `step` steps, with final values where that is all of them."""
        losses = [loss for _, loss in self.val_curve]
        finished = step == self.total_steps and self.tail_steps > 0
        return TrainResult(
            steps=step,
            tokens=self.tokens,
            final_train_loss=self.tail_loss / self.tail_steps if finished else None,
            final_grad_norm=self.grad_norm if finished else None,
            val_loss=losses[-1] if finished and losses else None,
            val_error=self.val_error if finished else None,
            best_val_loss=min(losses, default=None),
            val_curve=tuple(self.val_curve),
            clipped_fraction=self.clipped / max(1, step) if self.grad_clip is not None else None,
            epochs=self.samples / train_samples,
            undertrained=spec.undertrained,
            seconds=self.seconds,
            tokens_per_second=self.tokens / self.seconds if self.seconds > 0 else None,
            peak_bytes=memory.peak_bytes,
            measured=memory.measured,
            peak_in_use_bytes=memory.peak_in_use_bytes,
            resumed=self.resumed,
            repaired_lines=repaired_lines,
        )
