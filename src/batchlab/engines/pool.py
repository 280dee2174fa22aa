"""Which job gets which worker process: sharing, exclusiveness, threads, devices, and the end of them all."""

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
from batchlab.engines.addresses import placed_alike
from batchlab.engines.process import WorkerProcess
from batchlab.storage.run_folder import RunFolder

_MMAP_THRESHOLD, _FROM_THE_SYSTEM = "MALLOC_MMAP_THRESHOLD_", str(2**20)
"""glibc takes allocations above this from the system one by one and gives them back. Left alone it raises the threshold
to 32 MiB as a process runs, and the heap fragments differently at every batch size: a decoder's peak lay 49 MB below
its trace at batch 8 and 62 MB above at 55. Where memory is bounded or measured on a CPU it is therefore fixed."""


@dataclass(slots=True, eq=False)
class Job:
    """A spec somebody submitted, and the accidents it has had."""

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
        """Jobs of which this is equal may have one process after another; None: this one wants its own."""
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
    """A worker process and the job it has now."""

    process: WorkerProcess
    key: str | None
    device: str | None
    job: Job | None = None


class Pool:
    """The worker processes of one engine; used by one thread only.

    At most `workers` processes, and never more threads at work than `cores`, unless a single job asks for more.
    """

    def __init__(self, study: Path, command: Sequence[str], workers: int, cores: int, devices: Sequence[str]) -> None:
        self.places: list[WorkerSlot] = []
        self._study = study
        self._command = command
        self._workers = workers
        self._cores = cores
        self._devices = devices
        self._selector = selectors.DefaultSelector()

    def listen_also(self, descriptor: int) -> None:
        """Let `words` return early when `descriptor` (non-blocking) becomes readable; it is emptied."""
        os.set_blocking(descriptor, False)
        self._selector.register(descriptor, selectors.EVENT_READ, data=descriptor)

    def start(self, job: Job) -> bool:
        """Give the job to an idle worker or a new one; False while there is no room."""
        place = self._find(job)
        if place is None:
            return False
        place.job = job
        place.process.send({"spec": SPEC.dump_python(job.spec, mode="json"), "attempt": job.deaths + 1})
        return True

    def words(self, timeout: float) -> Iterator[tuple[WorkerSlot, dict[str, Any] | None, int]]:
        """(place, event, 0) for everything workers say within `timeout` seconds, then (place, None, exit code) for
        those that have exited; these are gone from the pool, with everything they had started."""
        for ready, _ in self._selector.select(timeout):
            if ready.data is not None:
                with suppress(BlockingIOError):
                    os.read(ready.data, 65536)
        for place in list(self.places):
            exit_code = place.process.exit_code()  # asked first: all its words are in the pipe by now
            events, ended = place.process.events()
            for event in events:
                yield place, event, 0
            if ended or exit_code is not None:
                self._forget_output(place)
            if exit_code is not None:
                self.places.remove(place)
                yield place, None, exit_code
                place.process.release()

    def close(self, grace_seconds: float, hurry: Callable[[], bool]) -> None:
        """Ask all workers to stop, wait, then insist. Runs save their checkpoints meanwhile."""
        deadline = time.monotonic() + grace_seconds
        for place in self.places:
            place.process.ask_to_stop()
        while self.places and time.monotonic() < deadline and not hurry():
            for _ in self.words(timeout=0.02):
                pass
        for place in self.places:
            self._forget_output(place)
            place.process.release()
        self.places.clear()
        self._selector.close()

    def _find(self, job: Job) -> WorkerSlot | None:
        running = [place.job for place in self.places if place.job is not None]
        if any(other.exclusive for other in running) or (job.exclusive and running):
            return None
        threads = sum(other.spec.device.threads for other in running)
        if running and (len(running) >= self._workers or threads + job.spec.device.threads > self._cores):
            return None
        idle = [place for place in self.places if place.job is None and not place.process.leaving]
        key = job.shared_with
        shared = next((place for place in idle if key is not None and place.key == key), None)
        if shared is not None:
            return shared
        # What has to make room must have left, and freed its memory, before the next one starts.
        if job.exclusive:
            for place in idle:
                place.process.dismiss()
            return None if self.places else self._open(job, key)
        if len(self.places) >= self._workers:
            if idle:
                idle[0].process.dismiss()
            return None
        return self._open(job, key)

    def _open(self, job: Job, key: str | None) -> WorkerSlot:
        device = None
        if job.spec.device.name == "cuda:0" and len(self._devices) > 1:
            device = min(self._devices, key=[place.device for place in self.places].count)
        command, extra = self._command, {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        if job.spec.device.name == "cpu" and (isinstance(job.spec, CapacitySpec) or job.spec.device.memory_limit):
            extra[_MMAP_THRESHOLD] = os.environ.get(_MMAP_THRESHOLD, _FROM_THE_SYSTEM)
            command = placed_alike(command)
        process = WorkerProcess(command, self._study, threads=job.spec.device.threads, extra=extra)
        place = WorkerSlot(process, key, device)
        self.places.append(place)
        self._selector.register(process, selectors.EVENT_READ)
        return place

    def _forget_output(self, place: WorkerSlot) -> None:
        if place.process.fileno() in self._selector.get_map():
            self._selector.unregister(place.process)


def visible_cuda_devices() -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES lists, or one number per Nvidia card; found without loading the driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(part.strip() for part in chosen.split(",") if part.strip())
    cards = Path("/proc/driver/nvidia/gpus")
    return tuple(str(index) for index, _ in enumerate(cards.iterdir())) if cards.is_dir() else ()
