"""The engine of a study on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import HERE
from batchlab.engines.early import Early
from batchlab.engines.hosts import this_machine
from batchlab.engines.process_engine import ProcessEngine


class LocalEngine(ProcessEngine):
    """A `ProcessEngine` on this machine: `workers` training runs at a time, never more threads than cores.

    devices: CUDA devices to spread workers over; default: those visible. command: how a worker is started, without its
    study.
    """

    def __init__(
        self,
        study: Path,
        workers: int,
        *,
        cores: int | None = None,
        devices: Sequence[str] | None = None,
        command: WorkerCommand = HERE,
        runs_per_worker: int = 20,
        silence_seconds: float = 600.0,
        grace_seconds: float = 30.0,
        early: Early | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            study,
            [this_machine(workers, cores=cores, cards=devices, command=command)],
            runs_per_worker=runs_per_worker,
            silence_seconds=silence_seconds,
            grace_seconds=grace_seconds,
            early=early,
            clock=clock,
        )
