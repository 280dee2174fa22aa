"""One spec in, one `RunResult` out: prepares the process and calls the run of the spec's kind.

Called by every engine's worker, in the worker's process. Errors of the person's code pass through; the worker makes an
outcome of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from batchlab.core.errors import InputError, StudyChanged
from batchlab.core.frameworks import SHIPPED, installed, load_framework
from batchlab.core.protocols import (
    Batch,
    MeasuresMetric,
    MemoryBound,
    OutOfMemory,
    RunContext,
    RunResult,
    SharesSums,
    Trainable,
)
from batchlab.core.ranks import Ranks
from batchlab.core.record import CapacityResult, Environment, Outcome, TaskInfo, TracePoint, TraceResult, WorkerDevice
from batchlab.core.spec import (
    AllReduceSpec,
    CapacitySpec,
    CheckSpec,
    InspectSpec,
    Spec,
    ThroughputSpec,
    TraceSpec,
    TrainSpec,
    WorkersSpec,
    Workload,
    devices_of,
)
from batchlab.data.largest import WorstStream, worst_batch
from batchlab.data.stream import SampleStream, epoch_samples
from batchlab.data.tokens import TokenSpan
from batchlab.runs.all_reduce import time_sums
from batchlab.runs.capacity import probe
from batchlab.runs.check import check
from batchlab.runs.evaluation import evaluate, evaluation_batches
from batchlab.runs.follower import Follower
from batchlab.runs.throughput import LEARNING_RATE, measure
from batchlab.runs.train import train
from batchlab.runs.workers import time_workers
from batchlab.runs.workload import Loaded, code_files, data_files, load

OnDevice = CapacitySpec | ThroughputSpec | WorkersSpec | AllReduceSpec | TrainSpec
"""What runs whole steps or sums on one or several devices."""

WARMUP_BATCH = 2
"""Samples in the warm-up step, at most: BatchNorm cannot train on one, and more than the run's own may not fit."""


LEAST_DRAWS, DRAW_SECONDS = 2, 10.0
"""Steps that are run to see how memory depends on values: at least two, and no more after this time."""

KEPT_WORKLOADS = 4
"""A study's worker needs two, with and without digests; a process that runs many studies must not keep all data."""


@dataclass(slots=True)
class _Process:
    """What this worker process has loaded, and its memory bound, which is set once, before the first measured step."""

    loaded: dict[str, Loaded] = field(default_factory=dict)
    bound: MemoryBound | None = None


_process = _Process()


def execute(spec: Spec, context: RunContext) -> RunResult:
    """Run one spec in this process. Errors, OutOfMemory and Interrupted pass through."""
    loaded = _load(spec.workload, context.cache_dir)
    if isinstance(spec, TraceSpec):
        return _trace(spec, loaded, context)  # needs no device
    loaded.framework.start(spec.device, seed=0)
    if isinstance(spec, InspectSpec):
        return _inspect(spec, loaded, context.cache_dir)
    if isinstance(spec, CheckSpec):
        return _check(spec, loaded, SampleStream(loaded.train, seed=0))
    return loaded.framework.on_ranks(
        devices_of(spec), spec.device, lambda ranks: _execute_on(ranks, spec, loaded, context)
    )


def _execute_on(ranks: Ranks, spec: OnDevice, loaded: Loaded, context: RunContext) -> RunResult:
    """Run a spec as one of its ranks. What rank 0 returns is the run's result."""
    context = context if ranks.rank == 0 else Follower(context)
    if isinstance(spec, CapacitySpec):
        return _probe(spec, loaded, context, ranks)
    stream = SampleStream(loaded.train, seed=spec.seed if isinstance(spec, TrainSpec) else 0)
    _bound_memory(spec, loaded, stream)
    trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
    _require_shareable(trainable, ranks)
    match spec:
        case ThroughputSpec():
            return measure(trainable, stream, spec, context, ranks)
        case WorkersSpec():
            return time_workers(trainable, stream, spec, context, ranks)
        case AllReduceSpec():
            return time_sums(trainable, spec, context, ranks, _device(spec, loaded))
        case TrainSpec():
            return train(trainable, stream, loaded.valid, spec, context, ranks)


def _device(spec: AllReduceSpec, loaded: Loaded) -> WorkerDevice:
    """This rank's device. On a CPU all ranks share one memory."""
    memory = loaded.framework.memory_bytes(loaded.task, spec.device)
    shared = spec.data_parallel_size if spec.device.name == "cpu" else 1
    name = loaded.framework.environment(spec.device).device
    return WorkerDevice(name=name, memory_bytes=None if memory is None else memory // shared)


def _require_shareable(trainable: Trainable, ranks: Ranks) -> None:
    """Raise InputError where several ranks would train something else than one."""
    if ranks.size == 1:
        return
    if not trainable.sample_independent:
        raise InputError(
            f"This model mixes the samples of a batch, so {ranks.size} devices, each with its own share, would train "
            "another model than one device; use one device."
        )
    if not isinstance(trainable, SharesSums):
        raise InputError("This framework trains on one device only; use one device.")


def environment(spec: Spec) -> Environment | None:
    """Versions and device of this process, for the record; None where its task could not be loaded."""
    loaded = _process.loaded.get(_key(spec.workload))
    return None if loaded is None else loaded.framework.environment(spec.device)


def preload_framework() -> None:
    """Import what a task of a person most likely needs, where it is installed.

    What is imported stays, so no collection looks through it: neither meanwhile, nor before each baseline of memory.
    """
    gc.disable()
    try:
        for name in installed()[:1]:
            load_framework(name).import_all()
    finally:
        gc.freeze()
        gc.enable()


def preload(workload: Workload, cache_dir: Path) -> bool:
    """Load a workload and no other; whether a process forked from this one can execute its specs.

    Raises whatever the person's code raises.
    """
    _process.loaded.clear()
    with ExitStack() as threads:
        for name in (workload.framework,) if workload.framework in SHIPPED else installed()[:1]:
            threads.enter_context(load_framework(name).one_thread())
        loaded = _load(workload, cache_dir)
    return not loaded.framework.holds_device()


def _key(workload: Workload) -> str:
    return workload.model_dump_json()


def _load(workload: Workload, cache_dir: Path) -> Loaded:
    key = _key(workload)
    if key not in _process.loaded:
        loaded = _load_again(workload, cache_dir) if workload.data_digest else load(workload, cache_dir)
        _require_same_data(workload, loaded)
        if len(_process.loaded) == KEPT_WORKLOADS:
            del _process.loaded[next(iter(_process.loaded))]
        _process.loaded[key] = loaded
    return _process.loaded[key]


def _load_again(workload: Workload, cache_dir: Path) -> Loaded:
    """The workload of a study that has begun, which could be loaded then. Raises StudyChanged where it cannot now."""
    try:
        return load(workload, cache_dir)
    except InputError as error:
        raise StudyChanged(
            f"The task could be loaded when this study began and cannot be now: {error} Restore what has changed and "
            "run the same command again, or start a new study with --out."
        ) from error


def _require_same_data(workload: Workload, loaded: Loaded) -> None:
    """Raise StudyChanged where the data differs from the study's: a file was changed or damaged, or data is drawn
    without a seed and differs in every worker. A run with other data would be no measurement of this study."""
    if not workload.data_digest or loaded.data_digest == workload.data_digest:
        return
    if all(isinstance(data, str | Path | np.memmap | TokenSpan) for data in (loaded.task.train, loaded.task.valid)):
        raise StudyChanged(
            f"The data of {workload.task} is not what this study began with ({loaded.source}): a file was changed or "
            "damaged. Restore it and run the same command again, or start a new study with --out."
        )
    raise StudyChanged(
        f"{workload.task} gives other data than when this study began, so runs would not see the same samples. If it "
        "is drawn or split at random, fix the seed, or save it to a file once; if it comes from files, restore them."
    )


def _bound_memory(spec: OnDevice, loaded: Loaded, stream: SampleStream) -> MemoryBound:
    """Warm up with a temporary model, then take the baseline.

    Lazy imports, thread pools and kernel caches belong to the process, not to the model. They cost 50 to 70 MB, which
    made the largest batch two sizes too small.
    """
    if _process.bound is not None:
        return _process.bound
    trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
    trainable.init(0)
    # A compiled worker sees one micro-batch shape only: a second one would be compiled for changing shapes.
    own = _micro_batch_size(spec)
    size = own if spec.device.compile != "off" else min(WARMUP_BATCH, own)
    batch = stream.batch(0, size)
    for _ in range(2):
        trainable.accumulate(batch, 1.0 / trainable.count(batch))
        trainable.apply(LEARNING_RATE)
    evaluated = min(WARMUP_BATCH, own)
    evaluate(trainable, list(evaluation_batches(loaded.valid, evaluated, evaluated)))
    trainable.synchronize()
    del trainable
    return _bound(spec, loaded)


def _bound(spec: OnDevice, loaded: Loaded) -> MemoryBound:
    """The bound of this process; it is set now if the warm-up has just ended, or ran out of memory."""
    if _process.bound is None:
        gc.collect()
        loaded.framework.start(spec.device, seed=0)
        _process.bound = loaded.framework.bound_memory(spec.device)
    return _process.bound


def _micro_batch_size(spec: OnDevice) -> int:
    match spec:
        case AllReduceSpec():
            return 1
        case CapacitySpec():
            return spec.micro_batch_size
        case _:
            return spec.layout.micro_batch_size


def _inspect(spec: InspectSpec, loaded: Loaded, cache_dir: Path) -> RunResult:
    device = loaded.framework.resolve_device(spec.device.name)
    settings = spec.device.model_copy(update={"name": device})
    trainable = loaded.framework.trainable(loaded.task, settings, spec.optimizer)
    trainable.init(0)
    paths = [path for path in (loaded.task.train, loaded.task.valid) if isinstance(path, str | Path)]
    result = TaskInfo(
        unit=loaded.task.unit,
        sequence_length=loaded.task.sequence_length or 1,
        train_samples=epoch_samples(loaded.train),
        valid_samples=len(loaded.valid),
        vocabulary=getattr(loaded.train, "vocabulary", None),
        parameter_count=trainable.parameter_count(),
        framework=loaded.framework_name,
        optimizer_family=trainable.optimizer_family(),
        own_optimizer=loaded.task.optimizer is not None,
        optimizer_groups=tuple(group for group, _ in trainable.optimizer_groups()),
        settings=_metric_settings(loaded, trainable),
        data_source=loaded.source,
        data_digest=loaded.data_digest,
        data_files=data_files([*paths, *_configured(spec.workload)], cache_dir),
        code=code_files(spec.workload.task),
        device=device,
        device_memory_bytes=loaded.framework.memory_bytes(loaded.task, settings),
        unified_memory=loaded.framework.unified_memory(settings),
        measured=trainable.memory().measured,
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _metric_settings(loaded: Loaded, trainable: Trainable) -> dict[str, Any]:
    """What the study judges by instead of the loss. Raises InputError where the framework cannot measure it."""
    task = loaded.task
    if task.metric is None:
        return {}
    if not isinstance(trainable, MeasuresMetric):
        raise InputError(
            f"{loaded.framework_name} does not measure batchlab.task(metric=…); without it the loss is judged."
        )
    name = getattr(task.metric, "__name__", type(task.metric).__name__)
    return {"evaluation": {"metric": name, "metric_better": task.metric_better}}


def _configured(workload: Workload) -> list[str]:
    return [path for path in (workload.data.path, workload.data.valid_path) if path]


def _check(spec: CheckSpec, loaded: Loaded, stream: SampleStream) -> RunResult:
    uncompiled = spec.device.model_copy(update={"compile": "off"})  # the check uses several batch shapes
    result = check(
        lambda: loaded.framework.trainable(loaded.task, uncompiled, spec.optimizer),
        train=stream,
        valid=loaded.valid,
        train_dataset=loaded.train,
        unit=loaded.task.unit,
        own_optimizer=loaded.task.optimizer is not None,
        precision=spec.device.precision,
        largest_batch=spec.largest_batch,
        scope=spec.scope,
    )
    return RunResult(Outcome.COMPLETED, "", result)


def _probe(spec: CapacitySpec, loaded: Loaded, context: RunContext, ranks: Ranks) -> RunResult:
    step_samples = spec.micro_batch_size * spec.grad_accum_steps * ranks.size
    stream = WorstStream(loaded.train, seed=0, worst_until=step_samples if spec.draws else None)
    try:
        bound = _bound_memory(spec, loaded, stream)
        trainable = loaded.framework.trainable(loaded.task, spec.device, spec.optimizer)
        _require_shareable(trainable, ranks)
        return probe(trainable, stream, loaded.valid, spec, context, bound, ranks)
    except OutOfMemory as failure:
        if ranks.rank:
            raise  # rank 0 records it
        reason, certain = str(failure) or "Out of memory.", failure.certain
    # Only here, where no traceback holds the failed step's tensors any more, is the memory of a warm-up free again.
    result = CapacityResult(
        micro_batch_size=spec.micro_batch_size,
        fits=False,
        certain=certain,
        available_bytes=_bound(spec, loaded).available_bytes,  # shows the search what other programs hold
    )
    return RunResult(Outcome.OUT_OF_MEMORY, reason, result)


def _trace(spec: TraceSpec, loaded: Loaded, context: RunContext) -> RunResult:
    """One size after the other, with progress after each: tracing a step operation by operation can take minutes."""
    if spec.draws:
        return RunResult(Outcome.COMPLETED, "", _trace_values(spec, loaded, context))
    sample, held_out = worst_batch(loaded.train, 1), worst_batch(loaded.valid, 1)
    points: tuple[TracePoint, ...] = ()
    varies = False
    for size in sorted(spec.micro_batch_sizes):
        traced = loaded.framework.trace(loaded.task, _alone(spec, size), sample, held_out)
        if traced.untraceable:
            return RunResult(Outcome.COMPLETED, "", traced)
        points += traced.points
        varies |= traced.varies
        context.progress(len(points), len(spec.micro_batch_sizes), 0, None, None)
    return RunResult(Outcome.COMPLETED, "", TraceResult(points=points, varies=varies, units=traced.units))


def _alone(spec: TraceSpec, size: int) -> TraceSpec:
    return spec.model_copy(update={"micro_batch_sizes": (size,)})


def _trace_values(spec: TraceSpec, loaded: Loaded, context: RunContext) -> TraceResult:
    """Steps that are run. Smaller sizes only show how memory grows; at the largest that this machine can run, all
    batches are drawn."""

    def run(size: int, draws: int) -> TraceResult:
        evaluated = worst_batch(loaded.valid, min(size, len(loaded.valid)))
        return loaded.framework.trace_values(loaded.task, _alone(spec, size), _draws(loaded, size, draws), evaluated)

    sizes = sorted(spec.micro_batch_sizes)
    points: tuple[TracePoint, ...] = ()
    for size in sizes:
        if points and _too_much(points[-1], size):
            break
        traced = run(size, spec.draws if size == sizes[-1] else min(LEAST_DRAWS, spec.draws))
        if traced.untraceable:
            return traced
        points += traced.points
        context.progress(len(points), len(sizes), 0, None, None)
    if len(points) < len(sizes):
        last = run(points[-1].micro_batch_size, spec.draws)
        return last if last.untraceable else TraceResult(points=(*points[:-1], *last.points))
    return TraceResult(points=points)


def _draws(loaded: Loaded, size: int, draws: int) -> Iterator[Batch]:
    """The largest batch by content, then others in the order of the data, until they took DRAW_SECONDS."""
    stream = WorstStream(loaded.train, seed=0, worst_until=size)
    started = time.monotonic()
    for draw in range(draws):
        if draw >= LEAST_DRAWS and time.monotonic() - started > DRAW_SECONDS:
            return
        yield stream.batch(draw * size, (draw + 1) * size)


def _too_much(smaller: TracePoint, size: int) -> bool:
    """Whether a step at this size could take more than a quarter of the memory that this machine has free."""
    needed = smaller.peak.total_bytes * size / smaller.micro_batch_size
    return needed > psutil.virtual_memory().available / 4
