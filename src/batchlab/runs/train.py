"""Train for a fixed number of tokens: the loop, over any Trainable.

One step: its micro-batches are gathered by sample index, each adds the gradient of Σ losses / (count of the whole
global batch), then the optimizer steps at the schedule's mean over the tokens of this step. Nothing in the loop waits
for the device: statistics stay there until a row of metrics, an evaluation or a checkpoint is due.
"""

from __future__ import annotations

from functools import partial

from batchlab.core.pairing import Pairing
from batchlab.core.protocols import Dataset, Interrupted, RunContext, RunResult, StepStats, Trainable
from batchlab.core.record import Outcome, TrainResult
from batchlab.core.schedule import Schedule
from batchlab.core.spec import TrainSpec
from batchlab.data.stream import SampleStream
from batchlab.runs.clock import TrainingClock
from batchlab.runs.divergence import Diverged
from batchlab.runs.evaluation import evaluate, evaluation_batches
from batchlab.runs.gradient_samples import GradientSampler
from batchlab.runs.observation import Observer
from batchlab.runs.start import Start, keep_end, save, start
from batchlab.runs.step import one_step, stats_on_host


def train(
    trainable: Trainable, stream: SampleStream, held_out: Dataset, spec: TrainSpec, context: RunContext
) -> RunResult:
    """Run `spec` to its end, from its checkpoint if there is one.

    Raises Interrupted after saving when the context asks to stop; OutOfMemory passes through.
    """
    steps, tokens_per_step = spec.steps, spec.layout.tokens_per_step
    schedule = Schedule(spec.schedule, spec.learning_rate, spec.token_budget, tokens_per_step)
    evaluation = list(evaluation_batches(held_out, spec.evaluation_samples, spec.evaluation_batch_size))
    evaluate_every = spec.evaluation_interval // tokens_per_step
    row_every = max(1, steps // spec.log_points)

    first_step, tally, stream = start(trainable, stream, spec, context)
    observer = Observer(trainable, held_out, spec, context)
    sampler = GradientSampler(trainable, spec.gradients, spec.layout)
    clock = TrainingClock(trainable)
    pending: list[StepStats] = []  # finished steps whose statistics are still on the device

    def result(done: int) -> TrainResult:
        return tally.result(
            spec,
            done,
            trainable.memory(),
            epochs=stream.epochs(done * spec.layout.global_batch_size),
            repaired_lines=context.repaired_lines,
            no_gradient_samples=sampler.why_not,
        )

    try:
        for step in range(first_step, steps):
            learning_rate = schedule.mean(step * tokens_per_step, (step + 1) * tokens_per_step)
            observer.before(step)
            pending.append(one_step(trainable, stream, spec.layout, step, learning_rate, sampler))
            done = step + 1
            clock.exclude(observer.after(done))

            row_due = done % row_every == 0 or done == steps
            evaluation_due = done % evaluate_every == 0 or done == steps
            stopping = context.stop_requested()
            if not (row_due or evaluation_due or stopping):
                continue
            seconds = clock.lap()
            tally.add(stats_on_host(trainable, pending), done - len(pending), spec)
            tally.add_seconds(seconds)
            pending.clear()
            for row in sampler.rows():
                context.row(row)
            if row_due:
                row = tally.take_row(spec, done, learning_rate, trainable.memory())
                context.row(row)
                context.progress(done, steps, row.tokens, row.train_loss, row.tokens_per_second)
            if evaluation_due:
                found = evaluate(trainable, evaluation, metric=spec.workload.metric, other_draws=done == steps)
                context.row(tally.add_evaluation(found, done, spec))
                clock.restart()
            if stopping or (done < steps and clock.checkpoint_due(spec.checkpoint_seconds)):
                clock.save(partial(save, trainable, context, Start(done, tally, stream)))
            if stopping:
                raise Interrupted
    except Diverged as broken:
        context.row(broken.row(tokens_per_step))
        return RunResult(Outcome.DIVERGED, str(broken), result(broken.step), Pairing.VERIFIED)
    if spec.keep_end:
        keep_end(trainable, spec, context, stream.first + steps * spec.layout.global_batch_size)
    return RunResult(Outcome.COMPLETED, "", result(steps), Pairing.VERIFIED)
