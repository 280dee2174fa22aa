"""Worker processes on this machine.

A thread of the engine hands specs to workers and reads their events, so that no worker waits while the study analyses.
Training runs with equal settings share a process; everything that measures gets a fresh process of its own.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from batchlab.core.errors import RunFailure, StorageFailed
from batchlab.core.protocols import Event, Finished, Progress
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import Spec
from batchlab.engines.attempt import result_of_out_of_memory
from batchlab.engines.crash import failure_of_death, failure_of_silence, fatal_error
from batchlab.engines.pool import Job, Pool, WorkerSlot, visible_cuda_devices
from batchlab.engines.resources import usable_cores
from batchlab.storage.run_folder import RunFolder

TRAINING_RETRIES = 2
"""Further attempts of a training run whose process died; each continues from the last checkpoint."""

MEASURING_RETRIES = 1
"""Further attempts of anything else that a signal ended: once may be an accident, twice is an outcome."""

_TICK_SECONDS = 0.2
_FAULT_BYTES = 65536
_PARKED_SECONDS = 0.5


class LocalEngine:
    """An Engine over processes on this machine: `workers` training runs at a time, never more threads than cores.

    runs_per_worker: a shared worker is replaced after this many runs.
    silence_seconds: a run without a sign of life for this long is ended and recorded as failed.
    grace_seconds: how long runs may take on `close` to save a checkpoint.
    devices: CUDA devices to spread workers over; default: those visible.
    command: how a worker is started; `--study DIR` is appended.
    """

    def __init__(
        self,
        study: Path,
        workers: int,
        *,
        runs_per_worker: int = 20,
        silence_seconds: float = 600.0,
        grace_seconds: float = 30.0,
        devices: Sequence[str] | None = None,
        cores: int | None = None,
        command: Sequence[str] = (sys.executable, "-P", "-m", "batchlab.engines.worker"),
    ) -> None:
        self._study = study.absolute()
        self._runs_per_worker = runs_per_worker
        self._silence_seconds = silence_seconds
        self._grace_seconds = grace_seconds
        # The study's thread and the engine's own communicate through these only.
        self._submitted: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self._closing, self._end_now = threading.Event(), threading.Event()
        self._wake_out, self._wake_in = os.pipe()
        # The study's thread:
        self._outstanding = 0
        self._failure: Exception | None = None
        self._closed = False
        # The engine's thread:
        self._waiting: deque[Job] = deque()
        self._parked: list[Job] = []
        self._parked_checked = 0.0
        cards = visible_cuda_devices() if devices is None else devices
        self._pool = Pool(self._study, tuple(command), workers, cores or usable_cores(), cards)
        self._pool.listen_also(self._wake_out)
        self._thread = threading.Thread(target=self._live, name="batchlab-engine", daemon=True)
        self._thread.start()

    def submit(self, spec: Spec, *, exclusive: bool = False) -> None:
        """Queue a spec. `exclusive` ones run alone on the device, each in a fresh process."""
        self._outstanding += 1
        self._submitted.put(Job(spec, exclusive, RunFolder(self._study, spec)))
        self._wake()

    def wait(self, timeout: float) -> list[Event]:
        """Events since the last call; blocks up to `timeout` seconds for the first one.

        Returns at once when nothing is queued or running. Raises StorageFailed when a worker could not write.
        """
        events: list[Event] = []
        with suppress(queue.Empty):
            while self._outstanding and self._failure is None:
                event = self._events.get(timeout=0 if events else timeout)
                if isinstance(event, Exception):
                    self._failure = event
                else:
                    events.append(event)
                    self._outstanding -= isinstance(event, Finished)
        if self._failure is not None and not events:
            raise self._failure
        return events

    def close(self) -> None:
        """Stop all runs, which save checkpoints, and end all workers. May be called twice.

        Ctrl-C meanwhile ends all workers at once.
        """
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._wake()
        try:
            self._thread.join()
        finally:
            self._end_now.set()
            self._thread.join()
            os.close(self._wake_in)
            os.close(self._wake_out)

    def _wake(self) -> None:
        os.write(self._wake_in, b"!")

    # The methods below run in the engine's thread.

    def _live(self) -> None:
        try:
            while not self._closing.is_set():
                while not self._submitted.empty():
                    self._waiting.append(self._submitted.get())
                self._start_waiting()
                for slot, event, exit_code in self._pool.events(_TICK_SECONDS):
                    if event is not None:
                        self._handle(slot, event)
                    elif slot.job is not None and not self._closing.is_set():
                        self._after_death(slot.job, exit_code, slot.process.last_output())
                self._retry_parked()
                self._end_silent()
        except Exception as error:  # noqa: BLE001 - wait() raises it again, in the study's thread
            self._events.put(error)
        finally:
            self._pool.close(self._grace_seconds, self._end_now.is_set)

    def _start_waiting(self) -> None:
        """Start jobs in the order they were submitted, as long as there is room."""
        while self._waiting:
            job = self._waiting[0]
            record = job.folder.record()
            if record is not None:
                self._events.put(Finished(job.spec, record))
            elif job.folder.locked_by_another():
                self._parked.append(job)
            elif not self._pool.start(job):
                return
            self._waiting.popleft()

    def _handle(self, slot: WorkerSlot, event: dict[str, Any]) -> None:
        name, job = event.pop("event"), slot.job
        if name == "failed_storage":
            raise StorageFailed(event["text"])
        if name == "ready" or job is None:
            return
        if name == "progress":
            self._events.put(Progress(**event))
            return
        slot.job = None
        slot.process.served += 1
        wanted_again = slot.key is not None and slot.process.served < self._runs_per_worker
        match name:
            case "finished":
                record = job.folder.record()
                if record is None:
                    raise RuntimeError(f"{job.folder.path} has no record although its worker has finished it")
                self._events.put(Finished(job.spec, record))
                wanted_again &= record.outcome not in (Outcome.FAILED, Outcome.OUT_OF_MEMORY)
            case "busy":
                self._parked.append(job)
            case "needs_fresh_process":
                job.fresh = True
                self._waiting.appendleft(job)
                wanted_again = False
            case "interrupted":
                self._waiting.appendleft(job)
                wanted_again = False
            case _:
                raise RuntimeError(f"a worker said {name!r}, which this engine does not understand")
        if not wanted_again:
            slot.process.dismiss()

    def _after_death(self, job: Job, exit_code: int, last_output: str) -> None:
        """A worker exited while it had this job, without an event that ends it."""
        job.deaths += 1
        if job.deaths <= (TRAINING_RETRIES if job.trains else MEASURING_RETRIES) and (job.trains or exit_code < 0):
            job.fresh = True
            self._waiting.appendleft(job)
            return
        fatal = fatal_error(job.folder.log_end(_FAULT_BYTES), Path(job.spec.workload.task.target))
        output = job.folder.log_tail() or last_output
        self._conclude(job, *failure_of_death(job.spec, exit_code, job.deaths, fatal, output))

    def _conclude(self, job: Job, outcome: Outcome, failure: RunFailure) -> None:
        """Record the end of a run whose worker cannot, unless another process has the run by now."""
        if not job.folder.try_lock():
            self._parked.append(job)
            return
        try:
            record = job.folder.record()
            if record is None:
                record = Record(
                    run_id=job.folder.run_id,
                    outcome=outcome,
                    reason=str(failure),
                    result=result_of_out_of_memory(job.spec, certain=False)
                    if outcome is Outcome.OUT_OF_MEMORY
                    else None,
                    pairing="verified" if job.trains else "none",
                    attempts=max(1, job.deaths),
                )
                job.folder.begin().finish(record)
        finally:
            job.folder.unlock()
        self._events.put(Finished(job.spec, record))

    def _retry_parked(self) -> None:
        """Queue runs that another process had locked and has finished or released."""
        now = time.monotonic()
        if not self._parked or now - self._parked_checked < _PARKED_SECONDS:
            return
        self._parked_checked = now
        for job in list(self._parked):
            if job.folder.record() is not None or not job.folder.locked_by_another():
                self._parked.remove(job)
                self._waiting.appendleft(job)

    def _end_silent(self) -> None:
        """End runs that gave no sign of life for too long."""
        now = time.monotonic()
        for slot in self._pool.slots:
            if slot.job is not None and now - slot.process.last_heard > self._silence_seconds:
                job, slot.job = slot.job, None
                slot.process.kill()
                failure = failure_of_silence(self._silence_seconds, job.folder.log_tail())
                self._conclude(job, Outcome.FAILED, failure)
