"""Executing specs for a study: finished ones are read from disk, the others go to an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache

from batchlab.core.errors import StudyChanged
from batchlab.core.protocols import Engine, Finished, View
from batchlab.core.record import CapacityResult, Outcome, Record
from batchlab.core.spec import DeviceSettings, OptimizerSettings, Spec, run_id
from batchlab.engines.hosts import Host, measuring_cores
from batchlab.storage.decisions import Decisions
from batchlab.storage.sealed import DamagedFile
from batchlab.study.documents import Documents
from batchlab.study.engines import EngineFactory
from batchlab.study.open_study import OpenStudy, changed_code
from batchlab.words.damage import set_aside_line
from batchlab.words.progress import waiting_line


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation working on a study."""

    study: OpenStudy
    make_engine: EngineFactory
    view: View
    retry_failed: bool = False
    documents: Documents | None = None  # kept up to date while it works
    hosts: Sequence[Host] = ()  # where its workers run; empty: here

    @property
    def device(self) -> DeviceSettings:
        """Device settings of a measurement that runs alone; training runs have other threads."""
        asked = self.study.experiment.device
        return DeviceSettings(
            name=self.study.task_info.device,
            precision=asked.precision,
            compile=asked.compile,
            threads=asked.threads or max(1, self._measuring_threads() // asked.most_devices),
            memory_limit=asked.memory_limit,
            memory_optimizations=asked.memory_optimizations,
        )

    def _measuring_threads(self) -> int:
        """All cores of the machine that measured first: with others, its measurements would be made again."""
        store = self.study.store
        decided = store.decisions().measuring_threads
        if decided is None:
            decided = store.decide(Decisions(measuring_threads=measuring_cores(self.hosts))).measuring_threads
        assert decided is not None
        return decided

    def optimizer(self, global_batch_size: int, learning_rate: float | None = None) -> OptimizerSettings:
        """The optimizer settings at this size, relative to the size and learning rate that they were given for."""
        experiment = self.study.experiment
        return OptimizerSettings(
            config=experiment.optimizer,
            batch_ratio=global_batch_size / experiment.reference_batch_size,
            rate_ratio=experiment.optimizer.rate_ratio(learning_rate) if learning_rate else 1.0,
        )


def run_alone(session: Session, specs: Sequence[Spec]) -> list[Record]:
    """Records of measurements that need the device to themselves: one after the other, each in a fresh process."""
    with open_engine(session, workers=1) as engine:
        return run_specs(session, specs, engine, exclusive=True)


@contextmanager
def open_engine(session: Session, workers: int) -> Iterator[Engine]:
    """An engine that is closed at the end; its worker processes start when there is work for them."""
    engine = session.make_engine(session.study.store.path, workers)
    try:
        yield engine
    finally:
        engine.close()


def run_specs(session: Session, specs: Sequence[Spec], engine: Engine, *, exclusive: bool = False) -> list[Record]:
    """Records of these specs, in their order: read from disk where finished, else executed now.

    Raises StudyChanged where the person's code was edited since the study began.
    """
    store = session.study.store
    found = {run_id(spec): _finished(session, run_id(spec)) for spec in specs}
    missing = {run_id(spec): spec for spec in specs if found[run_id(spec)] is None}
    if missing:
        _require_unchanged_code(session)
        say_once = cache(lambda owner: session.view.say(waiting_line(owner)))
        with store.exclusive(say_once) if exclusive else nullcontext():
            for spec in missing.values():
                engine.submit(spec, exclusive=exclusive)
            while missing:
                for event in engine.wait(1.0):
                    session.view.show(event)
                    if isinstance(event, Finished):
                        found[event.record.run_id] = event.record
                        del missing[event.record.run_id]
                        if session.documents is not None:
                            session.documents.run_ended()
                if session.documents is not None and not (exclusive and missing):  # which writing would disturb
                    session.documents.refresh()
    return [record for spec in specs if (record := found[run_id(spec)]) is not None]


def _finished(session: Session, identity: str) -> Record | None:
    """The record on disk; one that is damaged is set aside, a failed one dropped where failed runs are retried."""
    record = session.study.store.verified(identity)
    if isinstance(record, DamagedFile):
        if session.study.store.set_aside(identity):
            session.view.say(f"   {set_aside_line(record)}")
        return None
    if record is not None and session.retry_failed and _may_differ(record):
        session.study.store.forget(identity)
        return None
    return record


def _may_differ(record: Record) -> bool:
    """Whether another attempt may end in another way: it failed, or ran out of memory that others may have taken."""
    if record.outcome is Outcome.OUT_OF_MEMORY:
        return not (isinstance(record.result, CapacityResult) and record.result.certain)
    return record.outcome is Outcome.FAILED


def _require_unchanged_code(session: Session) -> None:
    changed = changed_code(session.study.store, session.study.task_info)
    if changed:
        raise StudyChanged(
            f"Edited while the study ran: {', '.join(sorted(changed))}. Finished runs are kept; undo the edit and run "
            "the same command again, or start a new study with --out."
        )
