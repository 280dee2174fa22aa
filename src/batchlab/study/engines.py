"""Where the runs of an invocation are executed: the engines of its stages, and what they share."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from batchlab.core.experiment import Experiment
from batchlab.core.protocols import Engine
from batchlab.core.spec import CapacitySpec, DeviceSettings, InspectSpec, Workload
from batchlab.engines.cards import visible_cards
from batchlab.engines.command import HERE, worker_command
from batchlab.engines.early import Early
from batchlab.engines.hosts import Host, this_machine
from batchlab.engines.inline import InlineEngine
from batchlab.engines.process_engine import ProcessEngine
from batchlab.engines.resources import usable_cores

EngineFactory = Callable[[Path, int], Engine]
"""(study folder, concurrent workers) → Engine."""


def engine_factory(asked: Experiment, hosts: Sequence[Host] = (), begins: Path | None = None) -> EngineFactory:
    """Where an experiment runs: the simulated device in this process, everything else in worker processes.

    hosts: where those run; empty: here, as many at a time as the study decides. begins: the folder of a study that
    does not exist yet. Its task will be inspected first, so the process for that starts now: call this before slow
    imports.
    The early processes are shared by all engines made, and end with the factory.
    """
    if asked.device.name == "simulated":
        return lambda folder, workers: InlineEngine(folder)
    here = not hosts and asked.command is None
    return _ProcessEngines(asked, hosts, begins if here else None)


class _ProcessEngines:
    """Makes engines that share early processes: inspecting a task, checking it and probing it start one Python."""

    def __init__(self, asked: Experiment, hosts: Sequence[Host], begins: Path | None) -> None:
        self._asked = asked
        self._hosts = hosts
        self._begins = begins
        self._early = Early()
        weakref.finalize(self, self._early.close)
        if begins is not None:
            spec = InspectSpec(workload=self._workload, device=inspecting_device(asked, usable_cores()))
            self._early.servers.start(worker_command(HERE, begins, spec, None))

    def __call__(self, folder: Path, workers: int) -> Engine:
        if self._begins is not None and self._on_cpu:
            # A little later than the fork server, which has to be ready first.
            threads = max(1, usable_cores() // self._asked.device.most_devices)
            device = DeviceSettings(threads=self._asked.device.threads or threads)
            spec = CapacitySpec(workload=self._workload, micro_batch_size=1, device=device, new_process=True)
            self._early.ahead.start(worker_command(HERE, self._begins.absolute(), spec, None))
        self._begins = None
        hosts = self._hosts or [this_machine(workers)]
        return ProcessEngine(folder, hosts, silence_seconds=self._asked.device.silence_seconds, early=self._early)

    @property
    def _workload(self) -> Workload:
        """As far as the command of a worker depends on it."""
        return Workload(task=self._asked.task, framework=self._asked.framework)

    @property
    def _on_cpu(self) -> bool:
        """Whether the task most likely runs on a CPU. If not, a worker was started for nothing."""
        name = self._asked.device.name
        return name == "cpu" or (name == "auto" and sys.platform == "linux" and not visible_cards())


def inspecting_device(asked: Experiment, cores: int) -> DeviceSettings:
    """The device of the process that inspects the task.

    It has the threads of later measurements, so that their processes are forked from the same server.
    """
    return DeviceSettings(name=asked.device.name, threads=asked.device.threads or cores)
