"""What an engine decides: which run starts next, what a worker's message means, and what becomes of a run without one.

`step` does all of it once and never waits, so a thread, a test or a simulation can call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from batchlab.core.clock import Clock
from batchlab.core.errors import BatchlabError, StorageFailed, StudyChanged
from batchlab.core.files import Files
from batchlab.core.protocols import Event, Finished, RunResult, Waiting
from batchlab.core.record import Outcome, Record
from batchlab.core.spec import Spec
from batchlab.core.worker import Message, Processes, UnreadableMessage
from batchlab.engines.crash import Death, failure_of_silence, lost_to, lost_to_protocol, result_of
from batchlab.engines.pool import Exited, Job, Pool, WorkerSlot
from batchlab.storage.files import DISK
from batchlab.storage.run_folder import RunFolder

TRAINING_RETRIES = 2
"""Further attempts of a training run that ended its process; each continues from the last checkpoint."""

MEASURING_RETRIES = 1
"""Further attempts of anything else whose process a signal ended: once may be an accident, twice is an outcome."""

BACK_OFF_SECONDS = (1.0, 5.0, 20.0)
"""Waiting times before further attempts of a run whose worker was lost; after them the study ends, and nothing is
recorded for the run."""

_ENDS_STUDY: dict[str, type[BatchlabError]] = {"failed_storage": StorageFailed, "study_changed": StudyChanged}
"""Messages after which no run can go on."""

_LOG_BYTES = 65536
_PARKED_SECONDS = 0.5

WAITING_SECONDS = 5.0
"""So long nothing may happen but waiting for another process's run before its owner is named."""

_KILL_SECONDS = 10.0
"""So long after the system killed a process for lack of memory, the death of a worker is put down to it."""

_LONGEST_STEP_SECONDS = 10.0
"""More than this between two steps means that this process stood still, and so may have its workers."""


class Dispatcher:
    """The decisions of an engine over worker processes; used by one thread only.

    emit: takes the events of the study, in their order.
    runs_per_worker: a shared worker is replaced after this many runs.
    silence_seconds: a run without a sign of life for this long is ended and recorded as failed.
    """

    def __init__(
        self,
        study: Path,
        pool: Pool,
        processes: Processes,
        clock: Clock,
        emit: Callable[[Event], None],
        *,
        runs_per_worker: int,
        silence_seconds: float,
        files: Files = DISK,
    ) -> None:
        self._study = study
        self._pool = pool
        self._clock = clock
        self._emit = emit
        self._runs_per_worker = runs_per_worker
        self._silence_seconds = silence_seconds
        self._files = files
        self._waiting: deque[Job] = deque()
        self._parked: list[Job] = []  # runs that another process has
        self._resting: list[tuple[float, Job]] = []  # lost runs, and when they may start again
        self._parked_checked = 0.0
        self._busy = 0.0  # when there was last anything to do but wait for other processes
        self._named: set[Waiting] = set()
        self._stepped = clock.monotonic()
        self._awake = 0.0  # seconds that passed while this process was stepped
        self._kills = _KillCount(processes.oom_kills)

    def submit(self, spec: Spec, *, exclusive: bool) -> None:
        """Queue a spec."""
        self._waiting.append(Job(spec, exclusive, RunFolder(self._study, spec, self._files)))

    def step(self) -> None:
        """Take in what the workers said, and start what there is room for.

        Raises StorageFailed where a worker could not write, StudyChanged where it found other data or code than the
        study's, WorkerLost where a run lost its worker too often.
        """
        now = self._clock.monotonic()
        self._awake += min(max(0.0, now - self._stepped), _LONGEST_STEP_SECONDS)
        self._stepped = now
        self._kills.look(self._awake)
        for slot, said in self._pool.heard(self._awake):
            self._take(slot, said)
        self._end_silent()
        self._wake_resting()
        self._retry_parked()
        self._pool.hand_over(self._awake)
        self._start_waiting()
        self._name_owners()

    def close(self, grace_seconds: float, end_now: Callable[[], bool]) -> None:
        """Stop all runs, which save checkpoints, and end all workers."""
        self._pool.close(grace_seconds, end_now)

    def _start_waiting(self) -> None:
        """Start jobs in the order they were submitted, as long as there is room."""
        while self._waiting:
            job = self._waiting[0]
            record = job.folder.record()
            if record is not None:
                self._emit(Finished(job.spec, record))
            elif job.folder.locked_by_another():
                self._parked.append(job)
            elif not self._pool.start(job, self._awake):
                return
            self._waiting.popleft()

    def _take(self, slot: WorkerSlot, said: Message | UnreadableMessage | Exited) -> None:
        job = slot.job
        if isinstance(said, Message) and said.event in _ENDS_STUDY:
            raise _ENDS_STUDY[said.event](said.text)
        if job is None:
            return
        match said:
            case Exited():
                slot.job = None
                self._after_death(slot, job, said)
            case UnreadableMessage():
                self._lose(slot, job, f"wrote an unreadable message ({said})")
            case Message(event="progress", progress=progress):
                if progress is not None:
                    self._emit(progress)
            case Message(event="waiting", text=file, owner=owner):
                self._name(Waiting(job.folder.run_id, owner, file))
            case Message(event=event, run_id=run_id):
                if run_id and run_id != job.folder.run_id:
                    self._lose(slot, job, f"spoke of another run ({run_id})")
                else:
                    self._after_run(slot, job, event)

    def _after_run(self, slot: WorkerSlot, job: Job, event: str) -> None:
        """The worker said how its run ended."""
        record = job.folder.record() if event == "finished" else None
        if event == "finished" and record is None:
            self._lose(slot, job, "finished but left no record")
            return
        slot.job = None
        slot.served += 1
        keep = slot.key is not None and slot.served < self._runs_per_worker
        match event:
            case "finished":
                assert record is not None
                self._emit(Finished(job.spec, record))
                keep &= record.outcome not in (Outcome.FAILED, Outcome.OUT_OF_MEMORY)
            case "busy":
                self._parked.append(job)
            case "needs_fresh_process":
                job.fresh = True
                self._waiting.appendleft(job)
                keep = False
            case "needs_blocking_launches":
                job.fresh = job.blocking = True
                self._waiting.appendleft(job)
                keep = False
            case _:  # interrupted
                self._waiting.appendleft(job)
                keep = False
        if not keep:
            slot.dismiss()

    def _after_death(self, slot: WorkerSlot, job: Job, exited: Exited) -> None:
        """A worker exited while it had this job, without a message that ends it."""
        self._kills.look(self._awake)  # it may have risen since this step began
        death = Death(
            exited.exit_code,
            began=slot.ready,
            relayed=slot.launched,
            oom_kills=self._kills.since(self._awake - _KILL_SECONDS),
            log=job.folder.log_end(_LOG_BYTES),
            errors=exited.errors,
        )
        result = result_of(job.spec, death, job.deaths + 1)
        if result is None:
            self._try_later(job, lost_to(job.spec, death, job.lost + 1))
            return
        job.deaths += 1
        retries = TRAINING_RETRIES if job.trains else MEASURING_RETRIES
        if job.deaths <= retries and (job.trains or death.signal is not None):
            job.fresh = True
            self._waiting.appendleft(job)
        else:
            self._conclude(job, result)

    def _lose(self, slot: WorkerSlot, job: Job, problem: str) -> None:
        """A worker did not keep to the protocol: end it, and try its run again."""
        slot.job, slot.leaving = None, True
        slot.process.kill()
        self._try_later(job, lost_to_protocol(job.spec, problem, job.lost + 1))

    def _try_later(self, job: Job, lost: Exception) -> None:
        """Try a run again whose worker was lost, a little later each time. Raises `lost` after the last attempt."""
        if job.lost == len(BACK_OFF_SECONDS):
            raise lost
        self._resting.append((self._awake + BACK_OFF_SECONDS[job.lost], job))
        job.lost += 1
        job.fresh = True

    def _wake_resting(self) -> None:
        due = [job for until, job in self._resting if until <= self._awake]
        self._resting = [(until, job) for until, job in self._resting if until > self._awake]
        self._waiting.extendleft(reversed(due))

    def _conclude(self, job: Job, result: RunResult) -> None:
        """Record the end of a run whose worker cannot, unless another process has the run by now."""
        if not job.folder.try_lock():
            self._parked.append(job)
            return
        try:
            record = job.folder.record()
            if record is None:
                record = Record(
                    run_id=job.folder.run_id,
                    outcome=result.outcome,
                    reason=result.reason,
                    result=result.result,
                    attempts=max(1, job.deaths + job.lost),
                )
                job.folder.begin().finish(record)
        finally:
            job.folder.unlock()
        self._emit(Finished(job.spec, record))

    def _retry_parked(self) -> None:
        """Queue runs that another process had locked and has finished or released."""
        if not self._parked or self._awake - self._parked_checked < _PARKED_SECONDS:
            return
        self._parked_checked = self._awake
        for job in list(self._parked):
            if job.folder.record() is not None or not job.folder.locked_by_another():
                self._parked.remove(job)
                self._waiting.appendleft(job)

    def _name_owners(self) -> None:
        """Say which runs are awaited, and from whom, once nothing else has happened for a while."""
        busy = self._waiting or self._resting or any(slot.job is not None for slot in self._pool.slots)
        if busy or not self._parked:
            self._busy = self._awake
        if self._awake - self._busy < WAITING_SECONDS:
            return
        for job in self._parked:
            self._name(Waiting(job.folder.run_id, job.folder.owner()))

    def _name(self, waiting: Waiting) -> None:
        if waiting not in self._named:
            self._named.add(waiting)
            self._emit(waiting)

    def _end_silent(self) -> None:
        """End runs that gave no sign of life for too long."""
        self._pool.dismiss_lost(self._awake)
        for slot in self._pool.slots:
            if slot.job is None:
                continue
            job = slot.job
            if slot.lost(self._awake):
                self._pool.avoid(slot, self._awake)
                self._lose(slot, job, f"was lost with {slot.host.name}")
                continue
            if self._awake - slot.heard <= self._silence_seconds:
                continue
            if not slot.ready:
                if not slot.launched:  # a launcher may wait for an allocation as long as it takes
                    self._lose(slot, job, "did not start in time")
                continue
            if job.ranks > 1:  # they may wait for each other for ever, which says nothing about the run
                self._lose(slot, job, f"made no progress for {self._silence_seconds:g} seconds")
                continue
            slot.job, slot.leaving = None, True
            slot.process.kill()
            failure = failure_of_silence(self._silence_seconds, job.folder.log_tail())
            self._conclude(job, RunResult(Outcome.FAILED, str(failure), None))


class _KillCount:
    """When the system's count of processes that it killed for lack of memory rose."""

    def __init__(self, count: Callable[[], int | None]) -> None:
        self._count = count
        self._last = count()
        self._rises: list[tuple[float, int]] = []

    def look(self, now: float) -> None:
        """Read the count."""
        count = self._count()
        if count is not None and self._last is not None and count > self._last:
            self._rises.append((now, count - self._last))
        self._last = count if count is not None else self._last

    def since(self, then: float) -> int:
        """By how much it has risen since then."""
        self._rises = [rise for rise in self._rises if rise[0] >= then]
        return sum(number for _, number in self._rises)
