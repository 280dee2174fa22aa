"""Train from scratch for a fixed number of tokens: the loop, over any Trainable.

One step: its micro-batches are gathered by sample index, each adds the gradient of Σ losses / (count of the whole
global batch), then the optimizer steps at the schedule's mean over the tokens of this step. Nothing in the loop waits
for the device: statistics stay there until a row of metrics is due.
"""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, field

from batchlab.core.batch import BatchLayout
from batchlab.core.protocols import Dataset, Interrupted, RunContext, RunResult, StepStats, Trainable
from batchlab.core.record import MetricRow, NoGradientSamples, Outcome, TrainResult
from batchlab.core.schedule import Schedule
from batchlab.core.spec import TrainSpec
from batchlab.data.stream import SampleStream
from batchlab.runs.divergence import Divergence, DivergenceWatch, window_steps
from batchlab.runs.evaluation import evaluate, evaluation_batches
from batchlab.runs.gradient_samples import GradientSampler
from batchlab.runs.observation import Observer
from batchlab.runs.start import go_on_from, keep_end

FINAL_FRACTION = 0.1
"""The final training loss is the mean over this last share of the run: one step alone is mostly noise."""


@dataclass(slots=True)
class Tally:
    """What the run has summed up so far; goes into the checkpoint, so that a resumed run ends with the same numbers."""

    watch: DivergenceWatch
    loss_sum: float = 0.0
    loss_max: float | None = None
    grad_norm_sum: float = 0.0
    clipped_sum: float = 0.0
    row_steps: int = 0
    row_seconds: float = 0.0
    clipped_total: float = 0.0
    tail_loss_sum: float = 0.0
    tail_norm_sum: float = 0.0
    tail_steps: int = 0
    seconds: float = 0.0
    resumed: int = 0
    val_curve: list[tuple[int, float]] = field(default_factory=list)
    val_error: float | None = None

    def add(self, stats: list[StepStats], first_step: int, tail_start: int) -> Divergence | None:
        """Add finished steps, up to the first that shows divergence."""
        for offset, (loss, norm, clipped) in enumerate(stats):
            value, norm_value = float(loss), float(norm)
            if self.watch.diverged(value) or not math.isfinite(norm_value):
                return Divergence(first_step + offset + 1, train_loss=value, grad_norm=norm_value)
            self.loss_sum += value
            self.loss_max = value if self.loss_max is None else max(value, self.loss_max)
            self.grad_norm_sum += norm_value
            self.clipped_sum += float(clipped)
            self.clipped_total += float(clipped)
            self.row_steps += 1
            if first_step + offset >= tail_start:
                self.tail_loss_sum += value
                self.tail_norm_sum += norm_value
                self.tail_steps += 1
        return None

    def clear_row(self) -> None:
        self.loss_sum = self.grad_norm_sum = self.clipped_sum = self.row_seconds = 0.0
        self.loss_max, self.row_steps = None, 0


def train(
    trainable: Trainable, stream: SampleStream, held_out: Dataset, spec: TrainSpec, context: RunContext
) -> RunResult:
    """Run `spec` to its end, from its checkpoint if there is one.

    Raises Interrupted after saving when the context asks to stop, and lets OutOfMemory through.
    """
    layout, steps, tokens_per_step = spec.layout, spec.steps, spec.layout.tokens_per_step
    schedule = Schedule(spec.schedule, spec.learning_rate, spec.token_budget)
    evaluation = list(evaluation_batches(held_out, spec.evaluation_samples, spec.evaluation_batch_size))
    evaluate_every = spec.evaluation_interval // tokens_per_step
    row_every = max(1, steps // spec.log_points)
    tail_start = steps - max(1, round(FINAL_FRACTION * steps))

    trainable.init(spec.seed)
    tally, step = Tally(DivergenceWatch(window_steps(layout.global_batch_size))), 0
    if (saved := context.load_checkpoint()) is not None:
        header, state = saved
        trainable.load(state)
        step = header["step"]
        tally = Tally(**{**header["tally"], "watch": DivergenceWatch(**header["tally"]["watch"])})
        tally.resumed += 1
        stream = stream.going_on_at(header.get("first", 0))
    elif spec.start is not None:
        stream = stream.going_on_at(go_on_from(spec.start, trainable, spec, context))
    pending: list[StepStats] = []
    observer = Observer(trainable, held_out, spec, context)
    sampler = GradientSampler(trainable, spec)
    resumed_at = saved_at = trainable.synchronize()

    def diverged(found: Divergence) -> RunResult:
        context.row(MetricRow(tokens=found.step * tokens_per_step, **asdict(found)))
        result = _result(spec, tally, found.step, trainable, stream, context, sampler.why_not)
        return RunResult(Outcome.DIVERGED, found.reason(steps, tally.watch.start), result)

    while step < steps:
        learning_rate = schedule.mean(step * tokens_per_step, (step + 1) * tokens_per_step)
        observer.before(step)
        pending.append(one_step(trainable, stream, layout, step, learning_rate, sampler))
        step += 1
        resumed_at += observer.after(step)

        row_due = step % row_every == 0 or step == steps
        evaluation_due = step % evaluate_every == 0 or step == steps
        stopping = context.stop_requested()
        if not (row_due or evaluation_due or stopping):
            continue
        now = trainable.synchronize()
        if (found := tally.add(pending, step - len(pending), tail_start)) is not None:
            return diverged(found)
        pending.clear()
        for row in sampler.rows():
            context.row(row)
        tally.row_seconds += now - resumed_at
        tally.seconds += now - resumed_at
        resumed_at = now
        if row_due:
            _write_row(context, tally, spec, step, learning_rate, trainable)
        if evaluation_due:
            loss, tally.val_error = astuple(evaluate(trainable, evaluation))
            if not math.isfinite(loss):
                return diverged(Divergence(step, val_loss=loss))
            tally.val_curve.append((step * tokens_per_step, loss))
            context.row(MetricRow(step=step, tokens=step * tokens_per_step, val_loss=loss))
            resumed_at = trainable.synchronize()
        if stopping or (step < steps and resumed_at - saved_at >= spec.checkpoint_seconds):
            header = {"step": step, "first": stream.first, "tally": asdict(tally)}
            context.save_checkpoint(header, trainable.state())
            resumed_at = saved_at = trainable.synchronize()
            if stopping:
                raise Interrupted
    if spec.keep_end:
        keep_end(trainable, spec, context, stream.first + steps * layout.global_batch_size)
    return RunResult(Outcome.COMPLETED, "", _result(spec, tally, steps, trainable, stream, context, sampler.why_not))


def one_step(
    trainable: Trainable,
    stream: SampleStream,
    layout: BatchLayout,
    step: int,
    learning_rate: float,
    sampler: GradientSampler | None = None,
) -> StepStats:
    """One optimizer step on samples [k·B, (k+1)·B) of the stream, in micro-batches.

    The gradient is Σ losses / Σ counts over the whole global batch, so unequal micro-batches weigh as they should.
    """
    start = step * layout.global_batch_size
    sampled = sampler is not None and sampler.due(step)
    micro_batches = []
    for size in sampler.sizes(step) if sampler is not None and sampled else layout.micro_batch_sizes():
        micro_batches.append(stream.batch(start, start + size))
        start += size
    counts = [trainable.count(batch) for batch in micro_batches]
    if sampler is not None and sampled:
        sampler.accumulate(micro_batches, counts, step)
        return trainable.apply(learning_rate)
    weight = 1.0 / sum(counts)
    for batch in micro_batches:
        trainable.accumulate(batch, weight)
    return trainable.apply(learning_rate)


def _write_row(
    context: RunContext, tally: Tally, spec: TrainSpec, step: int, learning_rate: float, trainable: Trainable
) -> None:
    count, tokens = tally.row_steps, step * spec.layout.tokens_per_step
    memory = trainable.memory()
    row = MetricRow(
        step=step,
        tokens=tokens,
        train_loss=tally.loss_sum / count,
        train_loss_max=tally.loss_max,
        learning_rate=learning_rate,
        grad_norm=tally.grad_norm_sum / count,
        clipped_fraction=tally.clipped_sum / count,
        step_seconds=tally.row_seconds / count,
        tokens_per_second=count * spec.layout.tokens_per_step / tally.row_seconds if tally.row_seconds > 0 else None,
        in_use_bytes=memory.in_use_bytes,
        reserved_bytes=memory.reserved_bytes,
    )
    context.row(row)
    context.progress(step, spec.steps, tokens, row.train_loss, row.tokens_per_second)
    tally.clear_row()


def _result(
    spec: TrainSpec,
    tally: Tally,
    step: int,
    trainable: Trainable,
    stream: SampleStream,
    context: RunContext,
    no_gradient_samples: tuple[NoGradientSamples, ...],
) -> TrainResult:
    memory = trainable.memory()
    losses = [loss for _, loss in tally.val_curve]
    finished = step == spec.steps and bool(tally.tail_steps)
    return TrainResult(
        steps=step,
        tokens=step * spec.layout.tokens_per_step,
        final_train_loss=tally.tail_loss_sum / tally.tail_steps if finished else None,
        final_grad_norm=tally.tail_norm_sum / tally.tail_steps if finished else None,
        val_loss=losses[-1] if finished and losses else None,
        val_error=tally.val_error if finished else None,
        best_val_loss=min(losses) if losses else None,
        val_curve=tuple(tally.val_curve),
        clipped_fraction=tally.clipped_total / max(1, step),
        epochs=stream.epochs(step * spec.layout.global_batch_size),
        undertrained=spec.undertrained,
        seconds=tally.seconds,
        tokens_per_second=step * spec.layout.tokens_per_step / tally.seconds if tally.seconds > 0 else None,
        peak_bytes=memory.peak_bytes,
        measured=memory.measured,
        peak_in_use_bytes=memory.peak_in_use_bytes,
        resumed=tally.resumed,
        repaired_lines=context.repaired_lines,
        no_gradient_samples=no_gradient_samples,
    )
