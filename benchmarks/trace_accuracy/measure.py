"""Traces a case, and runs the same case: every allocation of torch's CPU allocator, as its profiler reports it."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from workloads import WORKLOADS, Workload

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.spec import Workload as WorkloadReference
from batchlab.core.task import Task
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.trainable import TorchTrainable

SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16 autocast": {"device": {"precision": "bf16"}},
    "checkpointing": {"device": {"memory_optimizations": ("checkpointing",)}},
    "accumulation": {"accumulation": 2},
    "SGD + momentum": {"optimizer": "sgd"},
}
STEPS = 2
__all__ = ["SETTINGS", "WORKLOADS", "Peaks", "in_a_child", "measured", "traced"]


class Peaks(NamedTuple):
    """Bytes: the peak over two optimizer steps, and over an evaluation after them."""

    training: int
    evaluation: int


def traced(workload: Workload, setting: str) -> dict[int, Peaks]:
    """Micro-batch size → predicted peaks.

    Raises:
        InputError: the setting does not apply to the model.
    """
    sample = workload.batch(1)
    result = TorchFramework().trace(_task(workload), _spec(workload, setting), sample, sample)
    if result.untraceable:
        raise RuntimeError(result.untraceable)
    peaks = {}
    for point in result.points:
        phases = {phase.phase: phase.total_bytes for phase in point.phases}
        evaluation = phases.pop("evaluation")
        peaks[point.micro_batch_size] = Peaks(max(phases.values()), evaluation)
    return peaks


class OnDevice(TorchTrainable):
    """A TorchTrainable that copies its batch, as it would to a card, so that the allocator counts it too."""

    def _tensor(self, array: Any) -> Tensor:
        return super()._tensor(array).clone()


def measured(workload: Workload, setting: str, size: int) -> Peaks:
    """The largest number of bytes that torch's allocator held at any one time."""
    torch.set_num_threads(1)
    spec = _spec(workload, setting)
    trainable = OnDevice(_task(workload), spec.device, spec.optimizer)
    batch = workload.batch(size)

    def steps() -> None:
        trainable.init(0)
        for _ in range(STEPS):
            for _ in range(spec.grad_accum_steps):
                trainable.accumulate(batch, 1.0)
            trainable.apply(1e-3)

    held, training = _watched(steps)
    _, above = _watched(lambda: trainable.evaluate(batch))
    return Peaks(training, held + above)


def _watched(work: Callable[[], object]) -> tuple[int, int]:
    """Increase of held bytes over the work, and the peak in between."""
    gc.collect()  # an earlier model in a reference cycle, freed during the work, would count as bytes given back
    with profile(profile_memory=True) as profiler:
        work()
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return held, peak


def in_a_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value, computed in a fresh forked process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        value = receiver.recv()
    finally:
        process.join()
    if isinstance(value, Exception):
        raise value
    return value


def _send(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send(function(*arguments))
    except Exception as error:
        sender.send(error)
        if not isinstance(error, InputError):
            raise


def _task(workload: Workload) -> Task:
    example = workload.batch(1)
    return batchlab.task(model=workload.model, loss=workload.loss, train=example, valid=example)


def _spec(workload: Workload, setting: str) -> TraceSpec:
    chosen = SETTINGS[setting]
    return TraceSpec(
        workload=WorkloadReference(task=TaskReference(kind="file", target="workloads.py")),
        micro_batch_sizes=workload.sizes,
        grad_accum_steps=chosen.get("accumulation", 1),
        device=DeviceSettings(**chosen.get("device", {})),
        optimizer=OptimizerSettings(config=OptimizerConfig(name=chosen.get("optimizer", "adamw"))),
    )
