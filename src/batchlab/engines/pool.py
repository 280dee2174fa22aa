"""Which job gets which worker process: sharing, exclusive jobs, threads, devices, and shutting them down."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchlab.core.spec import SPEC, CapacitySpec, Spec, TraceSpec, TrainSpec
from batchlab.engines.addresses import at_fixed_addresses
from batchlab.engines.process import WorkerProcess
from batchlab.storage.run_folder import RunFolder

_MMAP_THRESHOLD, _FROM_THE_SYSTEM = "MALLOC_MMAP_THRESHOLD_", str(2**20)
"""glibc takes each allocation above this threshold from the system and returns it when freed. By default it raises the
threshold up to 32 MiB as a process runs, and the heap fragments differently at every batch size: a decoder's peak was
49 MB below its trace at batch 8 and 62 MB above it at 55. Where memory is bounded or measured on a CPU it is fixed."""


@dataclass(slots=True, eq=False)
class Job:
    """A submitted spec, and how often its process died."""

    spec: Spec
    exclusive: bool
    folder: RunFolder
    deaths: int = 0
    fresh: bool = False

    @property
    def trains(self) -> bool:
        return isinstance(self.spec, TrainSpec)

    @property
    def shared_with(self) -> str | None:
        """Jobs with equal keys may run in one process, one after the other; None: the job needs its own process."""
        if self.exclusive or self.fresh:
            return None
        if isinstance(self.spec, TraceSpec):
            return f"trace {self.spec.workload.model_dump_json()}"
        if not isinstance(self.spec, TrainSpec):
            return None
        shape = self.spec.layout.micro_batch_size if self.spec.device.compile else 0
        return f"{self.spec.device.model_dump_json()} {self.spec.workload.model_dump_json()} {shape}"


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A worker process and the job it is running."""

    process: WorkerProcess
    key: str | None
    device: str | None
    job: Job | None = None


class Pool:
    """The worker processes of one engine; used by one thread only.

    At most `workers` processes, and never more threads at work than `cores`, unless a single job asks for more.
    """

    def __init__(self, study: Path, command: Sequence[str], workers: int, cores: int, devices: Sequence[str]) -> None:
        self.slots: list[WorkerSlot] = []
        self._study = study
        self._command = command
        self._workers = workers
        self._cores = cores
        self._devices = devices
        self._selector = selectors.DefaultSelector()

    def listen_also(self, descriptor: int) -> None:
        """Let `events` return early when `descriptor` becomes readable; it is made non-blocking and emptied."""
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, data=descriptor)

    def start(self, job: Job) -> bool:
        """Give the job to an idle worker or a new one; False while there is no room."""
        slot = self._find(job)
        if slot is None:
            return False
        slot.job = job
        slot.process.send({"spec": SPEC.dump_python(job.spec, mode="json"), "attempt": job.deaths + 1})
        return True

    def events(self, timeout: float) -> Iterator[tuple[WorkerSlot, dict[str, Any] | None, int]]:
        """(slot, event, 0) for each event of a worker within `timeout` seconds; (slot, None, exit code) if it exited.

        A worker that has exited is removed from the pool, and the processes it had started are ended.
        """
        for ready, _ in self._selector.select(timeout):
            if ready.data is not None:
                with suppress(BlockingIOError):
                    os.read(ready.data, 65536)
        for slot in list(self.slots):
            exit_code = slot.process.exit_code()  # read first: all its events are in the pipe by now
            events, ended = slot.process.events()
            for event in events:
                yield slot, event, 0
            if ended or exit_code is not None:
                self._forget_output(slot)
            if exit_code is not None:
                self.slots.remove(slot)
                yield slot, None, exit_code
                slot.process.release()

    def close(self, grace_seconds: float, end_now: Callable[[], bool]) -> None:
        """Ask all workers to stop, wait while their runs save checkpoints, then kill those that remain."""
        deadline = time.monotonic() + grace_seconds
        for slot in self.slots:
            slot.process.ask_to_stop()
        while self.slots and time.monotonic() < deadline and not end_now():
            for _ in self.events(timeout=0.02):
                pass
        for slot in self.slots:
            self._forget_output(slot)
            slot.process.release()
        self.slots.clear()
        self._selector.close()

    def _find(self, job: Job) -> WorkerSlot | None:
        running = [slot.job for slot in self.slots if slot.job is not None]
        if any(other.exclusive for other in running) or (job.exclusive and running):
            return None
        threads = sum(other.spec.device.threads for other in running)
        if running and (len(running) >= self._workers or threads + job.spec.device.threads > self._cores):
            return None
        idle = [slot for slot in self.slots if slot.job is None and not slot.process.leaving]
        key = job.shared_with
        shared = next((slot for slot in idle if key is not None and slot.key == key), None)
        if shared is not None:
            return shared
        # A worker that makes room must have exited, and freed its memory, before the next one starts.
        if job.exclusive:
            for slot in idle:
                slot.process.dismiss()
            return None if self.slots else self._open(job, key)
        if len(self.slots) >= self._workers:
            if idle:
                idle[0].process.dismiss()
            return None
        return self._open(job, key)

    def _open(self, job: Job, key: str | None) -> WorkerSlot:
        device = None
        if job.spec.device.name == "cuda:0" and len(self._devices) > 1:
            device = min(self._devices, key=[slot.device for slot in self.slots].count)
        command, extra = self._command, {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        if job.spec.device.name == "cpu" and (isinstance(job.spec, CapacitySpec) or job.spec.device.memory_limit):
            extra[_MMAP_THRESHOLD] = os.environ.get(_MMAP_THRESHOLD, _FROM_THE_SYSTEM)
            command = at_fixed_addresses(command)
        process = WorkerProcess(command, self._study, threads=job.spec.device.threads, extra=extra)
        slot = WorkerSlot(process, key, device)
        self.slots.append(slot)
        self._selector.register(process, selectors.EVENT_READ)
        return slot

    def _forget_output(self, slot: WorkerSlot) -> None:
        if slot.process.fileno() in self._selector.get_map():
            self._selector.unregister(slot.process)


def visible_cuda_devices() -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES lists, or one number per Nvidia card; found without loading the driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip())
    cards = Path("/proc/driver/nvidia/gpus")
    return tuple(str(index) for index, _ in enumerate(cards.iterdir())) if cards.is_dir() else ()
