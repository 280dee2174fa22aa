"""Which run gets which worker process: sharing, exclusive runs, threads, devices, and shutting the workers down."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchlab.core.clock import Clock
from batchlab.core.spec import SPEC, Spec, TraceSpec, TrainSpec
from batchlab.core.worker import (
    LOST_SECONDS,
    Message,
    Processes,
    UnreadableMessage,
    WorkerProcess,
    parse_message,
)
from batchlab.engines.command import ranks_of, worker_command
from batchlab.engines.hosts import Host
from batchlab.storage.run_folder import RunFolder


@dataclass(slots=True, eq=False)
class Job:
    """A submitted spec, and what became of the processes that had it.

    deaths: by its own code. lost: from outside, before it began, or without keeping to the protocol.
    fresh: not in a process that has run something else. blocking: in one that waits for every kernel.
    """

    spec: Spec
    exclusive: bool
    folder: RunFolder
    deaths: int = 0
    lost: int = 0
    fresh: bool = False
    blocking: bool = False

    @property
    def trains(self) -> bool:
        return isinstance(self.spec, TrainSpec)

    @property
    def ranks(self) -> int:
        """Processes that share it."""
        return ranks_of(self.spec)

    @property
    def threads(self) -> int:
        """Of all its processes."""
        return self.ranks * self.spec.device.threads

    @property
    def shared_with(self) -> str | None:
        """Jobs with equal keys may run in one process, one after the other; None: the job needs its own process."""
        if self.exclusive or self.fresh or self.ranks > 1:
            return None
        if isinstance(self.spec, TraceSpec):
            return f"trace {self.spec.workload.model_dump_json()}"
        if not isinstance(self.spec, TrainSpec):
            return None
        shape = self.spec.layout.micro_batch_size if self.spec.device.compile != "off" else 0
        return f"{self.spec.device.model_dump_json()} {self.spec.workload.model_dump_json()} {shape}"


AVOID_SECONDS = 120.0
"""No new worker is started so long on a host that lost one, while another host can."""


STARTING_OVER_SSH = 8
"""So many workers of a host start at a time: where more than ten connections have not logged in yet, sshd drops some at
random (MaxStartups 10:30:100, man sshd_config)."""


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A worker process and the job it has; the job is sent once the worker is ready.

    heard, alive: when its run gave a sign of life, and when its process did, by the engine's count of seconds.
    """

    process: WorkerProcess
    host: Host
    key: str | None
    card: str | None  # the CUDA devices of its ranks, joined by commas
    heard: float
    alive: float
    job: Job | None = None
    ready: bool = False
    leaving: bool = False
    served: int = 0
    partial: bytes = b""

    @property
    def launched(self) -> bool:
        """Whether a launcher stands between this process and the worker."""
        return self.host.command.launched

    def lost(self, now: float) -> bool:
        """Whether nothing was heard of a worker elsewhere for so long that its host must be gone."""
        return self.launched and self.ready and now - self.alive > LOST_SECONDS

    def dismiss(self) -> None:
        """Let it exit when it has finished its run."""
        self.leaving = True
        self.process.end_input()


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker has ended. Everything it said before has been told."""

    exit_code: int
    errors: str


class Pool:
    """The worker processes of one engine; used by one thread only. No method waits but `close`.

    On each host at most its `workers` processes, and never more threads at work than its cores, unless a single job
    asks for more. Exclusive jobs, which measure, all go to the first host.
    """

    def __init__(self, study: Path, hosts: Sequence[Host], processes: Processes, clock: Clock) -> None:
        self.slots: list[WorkerSlot] = []
        self._study = study
        self._hosts = hosts
        self._processes = processes
        self._clock = clock
        self._avoided: dict[str, float] = {}  # names of hosts that lost a worker → until when

    def start(self, job: Job, now: float) -> bool:
        """Give the job to an idle worker or a new one; False while there is no room."""
        slot = self._find(job, now)
        if slot is None:
            return False
        slot.job = job
        if slot.ready:
            _send(slot, now)
        return True

    def heard(self, now: float) -> Iterator[tuple[WorkerSlot, Message | UnreadableMessage | Exited]]:
        """What workers said since the last call, and which have ended: those are no longer in the pool."""
        for slot in list(self.slots):
            exit_code = slot.process.exit_code()  # read first: all it wrote is in the pipe by now
            output, _ = slot.process.read()
            *lines, slot.partial = (slot.partial + output).split(b"\n")  # a torn line of a killed worker is dropped
            if lines:
                slot.alive = now
            for line in lines:
                try:
                    message = parse_message(line)
                except UnreadableMessage as error:
                    yield slot, error
                    continue
                if message is None or message.event == "alive":
                    continue
                slot.heard = now
                if message.event == "ready":
                    self._now_ready(slot, now)
                else:
                    yield slot, message
            if exit_code is not None:
                self.slots.remove(slot)
                if slot.launched and not slot.leaving:
                    self.avoid(slot, now)
                yield slot, Exited(exit_code, slot.process.errors())
                slot.process.release()

    def _now_ready(self, slot: WorkerSlot, now: float) -> None:
        slot.ready = True
        if slot.job is not None:
            _send(slot, now)

    def hand_over(self, now: float) -> None:
        """Give jobs whose workers are still starting to ready ones that have become idle."""
        for slot in self.slots:
            if slot.job is None or slot.ready or slot.key is None:
                continue
            idle = (other for other in self._idle() if other.ready and other.key == slot.key)
            other = next(idle, None)
            if other is not None:
                other.job, slot.job = slot.job, None
                _send(other, now)

    def close(self, grace_seconds: float, end_now: Callable[[], bool]) -> None:
        """Ask all workers to stop, wait while their runs save checkpoints, then kill those that remain."""
        deadline = self._clock.monotonic() + grace_seconds
        for slot in self.slots:
            slot.leaving = True
            if slot.launched and not slot.ready:  # perhaps its launcher still waits for an allocation
                slot.process.kill()
            else:
                slot.process.terminate()
        while self.slots and self._clock.monotonic() < deadline and not end_now():
            for _ in self.heard(0.0):
                pass
            if self.slots:
                self._processes.wait(0.02)
        for slot in self.slots:
            slot.process.release()
        self.slots.clear()

    def avoid(self, slot: WorkerSlot, now: float) -> None:
        """Prefer other hosts to this worker's for a while."""
        self._avoided[slot.host.name] = now + AVOID_SECONDS

    def dismiss_lost(self, now: float) -> None:
        """End idle workers whose hosts are gone."""
        for slot in self._idle():
            if slot.lost(now):
                self.avoid(slot, now)
                slot.leaving = True
                slot.process.kill()

    def _idle(self) -> list[WorkerSlot]:
        return [slot for slot in self.slots if slot.job is None and not slot.leaving]

    def _find(self, job: Job, now: float) -> WorkerSlot | None:
        hosts = self._hosts[:1] if job.exclusive else self._hosts
        hosts = [host for host in hosts if host.holds(job.ranks, job.spec.device.name)] or hosts
        preferred = [host for host in hosts if self._avoided.get(host.name, 0.0) <= now] or hosts
        rooms = (self._room(host, job, now) for host in sorted(preferred, key=self._load))
        return next((slot for slot in rooms if slot is not None), None)

    def _load(self, host: Host) -> float:
        """Running jobs over those that the host may have at a time."""
        return sum(slot.host is host and slot.job is not None for slot in self.slots) / host.workers

    def _room(self, host: Host, job: Job, now: float) -> WorkerSlot | None:
        """An idle worker of this host for the job, or a new one; None while there is no room."""
        slots = [slot for slot in self.slots if slot.host is host]
        running = [slot.job for slot in slots if slot.job is not None]
        if any(other.exclusive for other in running) or (job.exclusive and running):
            return None
        threads = sum(other.threads for other in running)
        if running and (len(running) >= host.workers or threads + job.threads > host.cores):
            return None
        idle, key = [slot for slot in self._idle() if slot.host is host], job.shared_with
        shared = [slot for slot in idle if key is not None and slot.key == key]
        if shared:
            return max(shared, key=lambda slot: slot.ready)
        # A worker that makes room must have exited, and freed its memory, before the next one starts.
        if job.exclusive:
            for slot in idle:
                slot.dismiss()
            return None if slots else self._open(host, job, key, now)
        if len(slots) >= host.workers:
            if idle:
                idle[0].dismiss()
            return None
        if host.command.through_shell and sum(not slot.ready for slot in slots) >= STARTING_OVER_SSH:
            return None
        return self._open(host, job, key, now)

    def _open(self, host: Host, job: Job, key: str | None, now: float) -> WorkerSlot:
        card = None
        if job.spec.device.name == "cuda" and len(host.cards) > 1 and not host.allocates:
            slots = [slot for slot in self.slots if slot.host is host and slot.card is not None]
            used = [card for slot in slots for card in (slot.card or "").split(",")]
            card = ",".join(sorted(host.cards, key=used.count)[: job.ranks])
        command = worker_command(host.command, self._study, job.spec, card, blocking=job.blocking)
        slot = WorkerSlot(self._processes.start(command), host, key, card, heard=now, alive=now)
        self.slots.append(slot)
        return slot


def _send(slot: WorkerSlot, now: float) -> None:
    assert slot.job is not None
    spec, attempt = SPEC.dump_python(slot.job.spec, mode="json"), slot.job.deaths + slot.job.lost + 1
    slot.heard = now
    slot.process.send(json.dumps({"spec": spec, "attempt": attempt}).encode() + b"\n")
