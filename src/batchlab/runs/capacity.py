"""Run whole steps at one micro-batch size: does it fit?

A probe does everything a training run does to memory: several optimizer steps (state is allocated in the first),
accumulation over two micro-batches (gradients stay alive through the second backward), clipping, and an evaluation.
"""

from __future__ import annotations

from batchlab.batch import BatchLayout
from batchlab.data.stream import SampleStream
from batchlab.protocols import Dataset, Ended, RunContext, Trainable
from batchlab.record import CapacityResult, Outcome
from batchlab.runs.throughput import LEARNING_RATE
from batchlab.runs.train import evaluate, evaluation_batches, one_step
from batchlab.spec import CapacitySpec


def probe(
    trainable: Trainable,
    stream: SampleStream,
    held_out: Dataset,
    spec: CapacitySpec,
    context: RunContext,
    baseline_bytes: int | None,
) -> Ended:
    """Train `spec.steps` steps and evaluate once; OutOfMemory passes through to the worker."""
    layout = BatchLayout(
        global_batch_size=spec.micro_batch_size * spec.grad_accum_steps,
        micro_batch_size=spec.micro_batch_size,
        sequence_length=spec.workload.sequence_length,
    )
    trainable.init(0)
    started = trainable.synchronize()
    for step in range(spec.steps):
        started = trainable.synchronize()
        stats = one_step(trainable, stream, layout, step, LEARNING_RATE)
        context.progress(step + 1, spec.steps, (step + 1) * layout.tokens_per_step, None, None)
    seconds = trainable.synchronize() - started
    evaluate(trainable, list(evaluation_batches(held_out, spec.evaluation_batch_size, spec.evaluation_batch_size)))
    memory = trainable.memory()
    result = CapacityResult(
        micro_batch_size=spec.micro_batch_size,
        fits=True,
        steps=spec.steps,
        final_train_loss=float(stats.loss),
        baseline_bytes=baseline_bytes,
        peak_allocated_bytes=memory.peak_allocated_bytes,
        peak_reserved_bytes=memory.peak_reserved_bytes,
        seconds_per_sample=seconds / layout.global_batch_size,
    )
    return Ended(Outcome.COMPLETED, "", result)
