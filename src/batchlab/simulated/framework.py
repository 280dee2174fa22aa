"""The Framework implementation of the simulated device."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from batchlab.core.errors import InputError
from batchlab.core.host import host_environment
from batchlab.core.protocols import Batch, Framework, Inspectable, MemoryBound
from batchlab.core.ranks import ALONE, Ranks
from batchlab.core.record import Environment, Phase, PhasePeak, TracePoint, TraceResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.task import Task
from batchlab.simulated.machine import Machine, Simulation
from batchlab.simulated.optimizer import is_plain
from batchlab.simulated.ranks import run_in_threads, worker_here
from batchlab.simulated.trainable import SimulatedTrainable

Result = TypeVar("Result")


class SimulatedFramework(Framework):
    """Creates SimulatedTrainables. Its only device is named "simulated"."""

    def resolve_device(self, name: str) -> str:
        """Return "simulated" for "auto" or "simulated"; raises InputError for any other name."""
        if name not in ("auto", "simulated"):
            raise InputError(f"This task runs on the simulated device, not on {name!r}; set device.name=simulated.")
        return "simulated"

    def start(self, device: DeviceSettings, seed: int) -> None:
        """Seed the global random state for the user's code. The simulation itself uses only its own seed."""
        random.seed(seed)
        np.random.seed(seed % 2**32)

    def holds_device(self) -> bool:
        """A simulated device belongs to no process."""
        return False

    def on_ranks(self, size: int, device: DeviceSettings, body: Callable[[Ranks], Result]) -> Result:
        """Run `body` on every rank, in threads of this process: a simulated device needs no process of its own."""
        return body(ALONE) if size == 1 else run_in_threads(size, body)

    def trainable(self, task: Task, device: DeviceSettings, optimizer: OptimizerSettings) -> Inspectable:
        """A Trainable for this task. Raises InputError if the model is no Simulation or a setting is not simulated."""
        _require_simulated(device)
        simulation = self._simulation(task)
        if simulation.problem.copies > 1 and not is_plain(optimizer.config):
            raise InputError(
                f"model.copies is {simulation.problem.copies}, which is computed for plain SGD only; use "
                "optimizer.name=sgd without momentum, weight decay and grad_clip, or set model.copies to 1."
            )
        return SimulatedTrainable(simulation, device, optimizer)

    def trace(self, task: Task, spec: TraceSpec, sample: Batch, held_out: Batch) -> TraceResult:
        """Peaks from the machine's formulas: fixed bytes count as parameters, other training bytes as activations."""
        _require_simulated(spec.device)
        machine = self._simulation(task).machine
        return TraceResult(points=tuple(_traced(machine, spec, size) for size in sorted(spec.micro_batch_sizes)))

    def trace_values(self, task: Task, spec: TraceSpec, batches: Iterable[Batch], held_out: Batch) -> TraceResult:
        """As `trace`: a simulated machine's memory depends on no values."""
        return self.trace(task, spec, held_out, held_out)

    def memory_bytes(self, task: Task, device: DeviceSettings) -> int | None:
        """Total memory of this thread's device."""
        return self._simulation(task).machine.memory_of(worker_here())

    def bound_memory(self, device: DeviceSettings) -> MemoryBound:
        """The baseline is 0 bytes; each Trainable applies the memory limit itself."""
        return MemoryBound(0, None)

    def _simulation(self, task: Task) -> Simulation:
        simulation = task.model()
        if not isinstance(simulation, Simulation):
            raise InputError(
                f"A simulated task's model= must return batchlab.simulated.machine.Simulation, not "
                f"{type(simulation).__name__}."
            )
        return simulation

    def environment(self, device: DeviceSettings) -> Environment:
        """Versions, device and threads for the record."""
        return host_environment(
            "simulated", threads=device.threads, device="simulated", device_memory_bytes=device.memory_limit
        )


def _require_simulated(device: DeviceSettings) -> None:
    if device.precision != "fp32" or device.compile != "off" or device.memory_optimizations:
        raise InputError(
            "The simulated device always computes in float64, without compilation and without memory optimizations; "
            "leave device.precision at fp32, device.compile off and device.memory_optimizations empty."
        )


def _traced(machine: Machine, spec: TraceSpec, size: int) -> TracePoint:
    evaluated = spec.evaluation_batch_size or size
    return TracePoint(
        micro_batch_size=size,
        phases=(
            _phase(machine, "forward", activations=size),
            _phase(machine, "backward", activations=size),
            _phase(machine, "optimizer"),
            _phase(machine, "evaluation", temporaries=evaluated),
        ),
        reserved_bytes=machine.peak_bytes(max(size, evaluated)),
    )


def _phase(machine: Machine, phase: Phase, activations: int = 0, temporaries: int = 0) -> PhasePeak:
    return PhasePeak(
        phase=phase,
        parameter_bytes=machine.fixed_bytes,
        gradient_bytes=0,
        optimizer_bytes=0,
        activation_bytes=activations * machine.bytes_per_sample,
        temporary_bytes=temporaries * machine.bytes_per_sample,
    )
