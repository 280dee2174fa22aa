"""A study's documents: tables, plan and report, made from the records and decisions on disk.

Records come first. While a study runs, its documents are written at most every few seconds, take a small share of the
time, and never end it: what cannot be written is a warning. Whatever stops the study writes them once more.

Documents never go backwards. Whoever writes them holds a lock from before the records are read until the last document
is written, so a document that replaces another was made from later records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchlab.analysis.assemble import assemble
from batchlab.analysis.dynamics.course import course_of
from batchlab.analysis.findings import Findings
from batchlab.analysis.values import Course
from batchlab.core.errors import InputError, StorageFailed
from batchlab.core.experiment import Experiment
from batchlab.core.files import FileState
from batchlab.core.protocols import View
from batchlab.core.record import Record
from batchlab.core.spec import Spec
from batchlab.plan import TrainingPlan, make_plan
from batchlab.report.notes import notes_page
from batchlab.report.write import render_report
from batchlab.storage.sealed import DamagedFile
from batchlab.storage.store import Store
from batchlab.study.revision import revision_of
from batchlab.words.progress import documents_not_written

LEAST_SECONDS = 5.0
"""Between two writings of a running study's documents."""

SHARE = 0.02
"""Of a running study's time that its documents may take: after a slow writing the next one waits longer."""


class Documents:
    """The documents of one study, kept up to date by this process. `write` False: they are not written at all."""

    def __init__(self, store: Store, view: View, *, write: bool = True) -> None:
        self._store = store
        self._view = view
        self._write = write
        self._reader = Reader(store)
        self._outdated = False
        self._not_before = -math.inf
        self._warned = False

    @property
    def up_to_date(self) -> bool:
        """Whether the documents on disk show all that this process knows; where it writes none, nothing is missing."""
        return not (self._write and self._outdated)

    def run_ended(self) -> None:
        """Note that a record is newer than the documents."""
        self._outdated = True

    def refresh(self) -> None:
        """Write the documents if they are outdated, it is time, and no other process is writing them."""
        clock = self._store.clock
        begun = clock.monotonic()
        if not (self._write and self._outdated) or begun < self._not_before:
            return
        lock = self._store.documents_lock()
        try:
            if lock.try_acquire():
                write_locked(self._store, self._reader, in_full=False)
                self._outdated = self._warned = False
        except Exception as error:  # noqa: BLE001 - a report must not end a study; the one at its end raises
            self._warn_once(error)
        finally:
            lock.release()
        ended = clock.monotonic()
        self._not_before = ended + max(LEAST_SECONDS, (ended - begun) / SHARE)

    def save(self) -> Findings:
        """Write the documents now, whatever was written before. A disk that takes no more is a warning."""
        if self._write:
            try:
                with self._store.documents_lock():
                    found = write_locked(self._store, self._reader)
                self._outdated = False
                return found
            except StorageFailed as error:
                self._outdated = True
                self._view.say(documents_not_written(error, self._store.path))
        return read_findings(self._store, reader=self._reader)

    def finish(self) -> None:
        """Write the documents if they are outdated; nobody will refresh them any more."""
        if self._outdated:
            self.save()

    def begin_notes(self, learning_rates: tuple[float, ...], budget: Mapping[str, Any]) -> None:
        """Make notes.md, once for a study. A disk that takes no more is a warning."""
        if self._store.decisions().notes_digest is not None:
            return  # before anything is read for a page that is not wanted
        try:
            revision = revision_of(_code_of(self._store.experiment))
            now = self._store.clock.now()
            self._store.begin_notes(notes_page(self.findings(), learning_rates, dict(budget), revision, now))
        except StorageFailed as error:
            self._warn_once(error)

    def findings(self) -> Findings:
        """What the records say now."""
        return read_findings(self._store, reader=self._reader, in_full=False)

    def _warn_once(self, error: Exception) -> None:
        """Not after every run."""
        if not self._warned:
            self._warned = True
            self._view.say(documents_not_written(error, self._store.path))


class Reader:
    """Reads the courses of a study's runs, each once for every version of its metrics."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._courses: dict[str, tuple[FileState | None, Course]] = {}

    def course(self, run_id: str) -> Course:
        """The course of this run, whose metrics are read only if they have changed since the last call."""
        state = self._store.metrics_state(run_id)
        known = self._courses.get(run_id)
        if known is None or known[0] != state:
            known = self._courses[run_id] = (state, course_of(run_id, self._store.values(run_id)))
        return known[1]


def _code_of(experiment: Experiment) -> Path:
    """The folder of the user's code: that of the task's file, else the current one."""
    path = Path(experiment.task.target)
    return path.parent if experiment.task.kind in ("file", "command") and path.exists() else Path.cwd()


def write_documents(store: Store, *, devices: int = 1) -> Findings:
    """Write outcomes.csv, results.csv, training_plan.json where there is an answer, report.md and report.html.

    devices: number of data-parallel devices for which the report shows the time to a loss. Raises InputError as
    `read_findings`, StorageFailed on a full disk.
    """
    with store.documents_lock():
        return write_locked(store, Reader(store), devices=devices)


def write_locked(store: Store, reader: Reader, *, devices: int = 1, in_full: bool = True) -> Findings:
    """`write_documents` for a caller that holds the documents' lock. The smallest files come first.

    `in_full` False: as `read_findings`.
    """
    records, damaged = store.scan(in_full=in_full)
    findings = replace(_findings(store, records, damaged, reader, in_full=in_full), devices=devices)
    plan = plan_or_none(findings)
    texts = {} if plan is None else {"training_plan.json": plan.model_dump_json(indent=2) + "\n"}
    if in_full:
        store.tidy()
    store.write_tables(records)
    store.write_documents(texts | render_report(findings, plan, store.notes(), store.clock.now()))
    return findings


def read_findings(store: Store, *, reader: Reader | None = None, in_full: bool = True) -> Findings:
    """The findings from the records and decisions on disk; partial until the study's last stage has ended.

    `in_full` False, for what is soon replaced: metrics are not compared with their digests (a running study has done so
    with those it continues from), and the losses of cells that were not run are not inferred.

    Raises InputError where nothing has been measured yet.
    """
    reader = reader or Reader(store)
    return _findings(store, *store.scan(in_full=in_full), reader, in_full=in_full)


def _findings(
    store: Store, records: list[tuple[Spec, Record]], damaged: list[DamagedFile], reader: Reader, *, in_full: bool
) -> Findings:
    decisions = store.decisions()
    if decisions.task_info is None:
        raise InputError(f"The study in {store.path} has measured nothing yet; run it first.")
    return assemble(
        store.experiment,
        decisions.task_info,
        records,
        store.rows,
        decisions,
        planned_runs=decisions.budget.runs_planned if decisions.budget else None,
        partial=not decisions.complete,
        course=reader.course,
        infer=in_full,
        damaged=damaged,
    )


def plan_or_none(findings: Findings) -> TrainingPlan | None:
    """The training plan; None while the study has no answer."""
    try:
        return make_plan(findings)
    except InputError:
        return None
