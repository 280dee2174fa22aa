"""Run whole steps at one micro-batch size: does it fit?

A probe uses memory as a training run does: several optimizer steps (state is allocated in the first),
accumulation over two micro-batches (gradients stay alive through the second backward), clipping, and an evaluation.
Where training will sample gradients or take diagnostic snapshots, so does the probe, because both need memory of their
own. Where samples differ in size, each batch holds the largest ones. Where memory depends on their values, how far the
peak still rises from step to step is measured too: the allocator's holes add up over batches of different needs.
"""

from __future__ import annotations

from batchlab.core.batch import BatchLayout
from batchlab.core.nested import leaves
from batchlab.core.protocols import (
    Batch,
    Dataset,
    Diagnosable,
    MemoryBound,
    RunContext,
    RunResult,
    SharesSums,
    Trainable,
)
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.record import CapacityResult, Outcome
from batchlab.core.spec import CapacitySpec
from batchlab.data.largest import WorstStream, worst_batch
from batchlab.runs.evaluation import evaluate
from batchlab.runs.gradient_samples import GradientSampler
from batchlab.runs.memory import largest
from batchlab.runs.observation import SAMPLES
from batchlab.runs.step import one_step
from batchlab.runs.throughput import LEARNING_RATE


def probe(
    trainable: Trainable,
    stream: WorstStream,
    held_out: Dataset,
    spec: CapacitySpec,
    context: RunContext,
    bound: MemoryBound,
    ranks: Ranks = ALONE,
) -> RunResult:
    """Train `spec.steps` steps and evaluate once. OutOfMemory passes through to the worker.

    On several ranks, the batch is as large on each of them, and the memory is that of the rank that needs most.
    """
    layout = BatchLayout(
        global_batch_size=spec.micro_batch_size * spec.grad_accum_steps * ranks.size,
        micro_batch_size=spec.micro_batch_size,
        data_parallel_size=ranks.size,
        sequence_length=spec.workload.sequence_length,
    )
    one_pass = layout.model_copy(update={"global_batch_size": spec.micro_batch_size * ranks.size})
    sampler = GradientSampler(trainable, spec.gradients, layout)
    trainable.init(0)
    if ranks.size > 1:
        assert isinstance(trainable, SharesSums)
        trainable.join(ranks)
    started = trainable.synchronize()
    peaks: list[int] = []
    for step in range(spec.steps):
        started = trainable.synchronize()
        snapshot = spec.snapshot if step == spec.steps - 2 else None
        if snapshot is not None and isinstance(trainable, Diagnosable):
            trainable.watch(snapshot)
        laid_out = layout if spec.whole or step else one_pass
        stats = one_step(trainable, stream, laid_out, step, LEARNING_RATE, sampler, ranks=ranks)
        if snapshot is not None and isinstance(trainable, Diagnosable):
            trainable.readings(worst_batch(held_out, min(SAMPLES, spec.evaluation_batch_size, len(held_out))))
        if spec.draws and step and (peak := trainable.memory().peak_bytes) is not None:
            peaks.append(peak)
        context.progress(step + 1, spec.steps, (step + 1) * layout.tokens_per_step, None, None)
    seconds = trainable.synchronize() - started
    evaluated = worst_batch(held_out, min(spec.evaluation_batch_size, len(held_out)))
    evaluate(trainable, [evaluated], metric=spec.workload.metric)
    memory = largest(trainable.memory(), ranks)
    result = CapacityResult(
        micro_batch_size=spec.micro_batch_size,
        fits=True,
        steps=spec.steps,
        final_train_loss=float(stats.loss),
        baseline_bytes=bound.baseline_bytes,
        available_bytes=bound.available_bytes,
        peak_bytes=memory.peak_bytes,
        measured=memory.measured,
        peak_in_use_bytes=memory.peak_in_use_bytes,
        grown_bytes=max(peaks[-1] - peaks[0], 0) if peaks else None,
        batch_shapes=_shapes(stream.batch(0, spec.micro_batch_size)) if stream.sizes_differ else None,
        seconds_per_sample=seconds * ranks.size / layout.global_batch_size,
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _shapes(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in leaves(batch))
