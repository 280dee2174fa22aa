"""How the worker for a spec is started: its command, threads, device, and what fixes its memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from batchlab.core.frameworks import forks
from batchlab.core.spec import CapacitySpec, CheckSpec, InspectSpec, Spec, TraceSpec, TrainSpec, devices_of
from batchlab.core.worker import WorkerCommand
from batchlab.engines.addresses import at_fixed_addresses, at_fixed_addresses_there

HERE = WorkerCommand(
    (sys.executable, "-P", "-m", "batchlab.engines.worker"),
    fork_server=(sys.executable, "-P", "-m", "batchlab.engines.fork_server") if sys.platform == "linux" else (),
)
"""A worker on this machine. On macOS a process that has loaded the system's frameworks must not fork."""

IMPORT_ALL = "--import-all"
"""A worker with this argument imports what its task will need before it is ready for it."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_ALWAYS = {
    "MALLOC_ARENA_MAX": "1",  # memory per thread arena would be counted against the model
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",  # sets of strings iterate in the same order in every worker
}

_UNLESS_SET = {"GOMP_SPINCOUNT": "5000"}
"""How long threads of GNU's OpenMP runtime spin before they sleep. Its default is hundreds of times as long; beside one
other busy program, two threads then fall to a hundredth of their speed (a decoder of 0.14M parameters: 0.4k
tokens/s; with this value 5k to 10k). On an idle machine it costs 3 %: 49k instead of 51k tokens/s at batch 4, 82k
instead of 84k at 32."""

_UNLESS_SET_FOR_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
"""glibc takes each allocation above this threshold from the system and returns it when freed. By default it raises the
threshold up to 32 MiB as a process runs, and the heap fragments differently at every batch size: a decoder's peak was
49 MB below its trace at batch 8 and 62 MB above it at 55. Where memory is bounded or measured on a CPU it is fixed, and
so it is for what comes before: all of that is forked from one process."""

BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
"""CUDA waits for every kernel, so that an error on the card appears at the line that caused it."""

_BEFORE_MEASURING = (InspectSpec, CheckSpec, TraceSpec)


def must_be_new(spec: Spec) -> bool:
    """Whether its process must be started for it."""
    return isinstance(spec, CapacitySpec) and spec.new_process


def group_program(size: int, program: Sequence[str]) -> tuple[str, ...]:
    """The program that runs `program`, which begins with its Python, on so many ranks (engines/rank_group.py)."""
    return (program[0], "-P", "-m", "batchlab.engines.rank_group", str(size), *program)


def ranks_of(spec: Spec) -> int:
    """Processes that execute a spec together: one per device. Simulated devices share a process."""
    return 1 if spec.device.name == "simulated" else devices_of(spec)


def wanted_later(spec: Spec) -> CapacitySpec | None:
    """A spec whose new process has the command of the one that will verify a size, after this check or trace on a CPU.

    Starting that process ahead hides the seconds that it takes to import torch behind the trace and the calibration.
    """
    workload = spec.workload
    leads_there = isinstance(spec, TraceSpec) or (isinstance(spec, CheckSpec) and spec.scope == "memory")
    if not leads_there or spec.device.name != "cpu" or workload.integration or not forks(workload.framework):
        return None
    return CapacitySpec(workload=spec.workload, micro_batch_size=1, device=spec.device, new_process=True)


def worker_command(
    base: WorkerCommand,
    study: Path,
    spec: Spec,
    device: str | None,
    inherited: Mapping[str, str] = os.environ,
    *,
    blocking: bool = False,
) -> WorkerCommand:
    """The command of a worker that may execute `spec`.

    device: the CUDA devices it may see, one for each of its ranks; None: all. A variable that the person set takes
    precedence over those that only tune (`inherited`). blocking: it waits for every kernel.
    """
    program, fork_server = (*base.program, "--study", str(study)), base.fork_server
    if base.prefix or spec.workload.integration is not None or isinstance(spec, TrainSpec):
        fork_server = ()  # training runs already share a process; an integration loads nothing that could be shared
    if blocking or ranks_of(spec) > 1 or not forks(spec.workload.framework):
        fork_server = ()
    elif must_be_new(spec):
        program, fork_server = (*program, IMPORT_ALL), ()
    tuning = dict(_UNLESS_SET)
    bounded = spec.device.name == "cpu" and (isinstance(spec, CapacitySpec) or spec.device.memory_limit)
    if bounded or isinstance(spec, _BEFORE_MEASURING):
        tuning |= _UNLESS_SET_FOR_MEMORY
        fixed = at_fixed_addresses_there(program[0], program) if base.prefix else at_fixed_addresses(program)
        program = tuple(fixed)
        fork_server = tuple(at_fixed_addresses(fork_server)) if fork_server else ()
    environment = {name: value for name, value in tuning.items() if name not in inherited}
    environment |= _ALWAYS | dict.fromkeys(_THREAD_VARIABLES, str(spec.device.threads))
    if blocking:
        environment |= BLOCKING
    if device is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device
    if ranks_of(spec) > 1:
        program = group_program(ranks_of(spec), program)
    return replace(
        base,
        program=program,
        environment={**base.environment, **environment},
        fork_server=fork_server,
        study=str(study),
        preload=spec.workload.model_dump_json() if fork_server else "",
    )
