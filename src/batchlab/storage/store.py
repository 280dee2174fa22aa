"""A study's folder: the question, the measured decisions, the runs and the tables made from them.

Safe under kill -9, a full disk and two processes at once: files are replaced whole, what is shared is written under
the study's lock, and each run has a lock of its own (run_folder.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.errors import BatchlabError, InputError, StudyChanged
from batchlab.core.experiment import SCHEMA_VERSION, Experiment, differing_fields
from batchlab.core.files import Files, FileState
from batchlab.core.record import MetricRow, Record
from batchlab.core.spec import Spec
from batchlab.storage import metrics
from batchlab.storage.atomic import (
    is_temporary,
    make_folders,
    remove_temporaries,
    remove_tree,
    storage_failure,
    write_atomically,
)
from batchlab.storage.decisions import Decisions
from batchlab.storage.files import DISK
from batchlab.storage.kept import KeptFile
from batchlab.storage.lock import Lock, require_locks
from batchlab.storage.metrics import RowValues
from batchlab.storage.run_folder import KnownRuns, RunFolder, look_at_run, read_run, set_aside_run
from batchlab.storage.sealed import DamagedFile
from batchlab.storage.space import require_space
from batchlab.storage.tables import outcomes_csv, results_csv

_EXPERIMENT, _DECISIONS = "experiment.json", "decisions.json"
_LOCK = ".lock"
_MEASURING = ".measuring.lock"
_DOCUMENTS = ".documents.lock"

_LOCK_SECONDS = 60.0
"""The study's lock is held for milliseconds; a process that waits this long waits for one that was stopped."""


class Store:
    """One study on disk. Make it with `Store.create` or `Store.open`."""

    def __init__(self, path: Path, experiment: Experiment, files: Files = DISK, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = path
        self.experiment = experiment
        self.files = files
        self.clock = clock
        self._known_runs = KnownRuns(files)

    @staticmethod
    def exists(path: Path, files: Files = DISK) -> bool:
        """Whether there is a study at `path`, of whatever experiment."""
        return any(_is_file(path / name, files) for name in (_EXPERIMENT, f".{_EXPERIMENT}.copy"))

    @staticmethod
    def require_usable(path: Path, files: Files = DISK) -> None:
        """Raise InputError where `path` is a file, a folder of something else, or cannot be written, and StorageFailed
        where files there cannot be locked. Leaves nothing behind."""
        try:
            entries = files.names(path)
        except FileNotFoundError:
            entries = []
        except NotADirectoryError:
            if files.state(path) is not None:
                raise InputError(f"{path} is not a folder; give a folder for the study with --out.") from None
            entries = []
        except OSError as error:
            raise _not_writable(path, error) from None
        if not Store.exists(path, files):
            foreign = [name for name in entries if name != _LOCK and not is_temporary(name)]
            if foreign:
                raise InputError(
                    f"{path} holds {foreign[0]!r} and is not a study (it has no experiment.json); "
                    "give a new folder with --out."
                )
        path = path.absolute()
        existing = next(folder for folder in (path, *path.parents) if files.state(folder) is not None)
        if not files.writable(existing):
            raise InputError(f"The study folder {path} cannot be made in {existing}; choose another with --out.")
        try:
            require_locks(existing, files)
        except OSError as error:
            raise _not_writable(path, error) from None

    @classmethod
    def create(cls, path: Path, experiment: Experiment, files: Files = DISK, clock: Clock = SYSTEM_CLOCK) -> Store:
        """The study at `path` for this experiment: a new folder, or an existing study of the same experiment.

        Raises InputError for a folder of something else or one that cannot be written, StudyChanged for a study of
        another experiment; in each case nothing has been written.
        """
        path = path.absolute()
        if not cls.exists(path, files):
            cls.require_usable(path, files)
            try:
                make_folders(path, files)
            except OSError as error:
                raise _not_writable(path, error) from None
            with _lock(path, files, clock):
                if not cls.exists(path, files):
                    KeptFile(path / _EXPERIMENT, files).write(experiment.model_dump_json(indent=1))
        store = cls.open(path, files, clock)
        store.require_same(experiment)
        with store.locked():
            store._tidy()
        return store

    @classmethod
    def open(cls, path: Path, files: Files = DISK, clock: Clock = SYSTEM_CLOCK) -> Store:
        """The study at `path`. Raises InputError where there is none, it is damaged, or a newer batchlab wrote it."""
        path = path.absolute()
        file = path / _EXPERIMENT
        try:
            content = KeptFile(file, files).read()
        except NotADirectoryError:
            content = None
        if content is None:
            raise InputError(
                f"{path} is not a study: it has no experiment.json. "
                "Give the folder that `batchlab study` printed, by default studies/NAME."
            )
        values = json.loads(content)
        version = values.get("schema_version") if isinstance(values, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise InputError(
                f"A newer batchlab made the study in {path} (schema {version}, this one reads {SCHEMA_VERSION}); "
                "update batchlab, or start a new study with --out."
            )
        try:
            return cls(path, Experiment.model_validate(values), files, clock)
        except ValidationError:
            raise InputError(f"{file} is not a batchlab experiment; start a new study with --out.") from None

    def require_same(self, experiment: Experiment) -> None:
        """Raise StudyChanged, naming each setting that differs, where the study answers another question."""
        different = differing_fields(self.experiment, experiment)
        if different:
            listed = "; ".join(f"{each.name}: stored {each.stored!r}, asked {each.asked!r}" for each in different)
            raise StudyChanged(
                f"The study in {self.path} answers another question ({listed}); give the same settings to continue it, "
                "or another folder with --out."
            )

    def decide(self, new: Decisions) -> Decisions:
        """Keep measured choices for good, and return all that are kept: the first that anybody made of each.

        Safe under concurrent writers. Raises InputError where decisions.json is damaged, StorageFailed on a full disk.
        """
        with self.locked():
            kept = self.decisions()
            joined = kept.joined(new)
            if joined != kept:
                self._decisions_file.write(joined.as_json())
            return joined

    def decisions(self) -> Decisions:
        """All choices kept so far. Raises InputError where decisions.json is damaged."""
        content = self._decisions_file.read()
        if content is None:
            return Decisions()
        try:
            return Decisions.model_validate_json(content)
        except ValidationError:
            raise InputError(
                f"{self._decisions_file.path} was written by another version of batchlab; use that version, or start a "
                "new study with --out."
            ) from None

    @property
    def _decisions_file(self) -> KeptFile:
        return KeptFile(self.path / _DECISIONS, self.files)

    def repair(self) -> list[DamagedFile]:
        """Replace a damaged experiment.json or decisions.json by its copy; what was damaged has been set aside.

        Also removes what killed writers left.
        """
        with self.locked():
            self._tidy()
            found = [KeptFile(self.path / name, self.files).repair() for name in (_EXPERIMENT, _DECISIONS)]
        return [damaged for damaged in found if damaged is not None]

    def run(self, spec: Spec) -> RunFolder:
        """The folder of one run; nothing is created before it is locked."""
        return RunFolder(self.path, spec, self.files)

    def records(self) -> list[tuple[Spec, Record]]:
        """Every finished run whose files are whole, sorted by run_id."""
        return self.scan()[0]

    def scan(self, *, in_full: bool = False) -> tuple[list[tuple[Spec, Record]], list[DamagedFile]]:
        """Every finished run whose files are whole, and what is damaged, unreadable, or set aside and not replaced yet.

        A record or spec that this object has read is read again only once it has changed. `in_full`: everything is
        read, metrics too, whatever was read before.
        """
        look = partial(look_at_run, files=self.files, metrics=True) if in_full else self._known_runs
        found = [look(run) for run in self._runs()]
        kept = [KeptFile(self.path / name, self.files).damage() for name in (_EXPERIMENT, _DECISIONS)]
        return (
            [each for each in found if isinstance(each, tuple)],
            [each for each in (*kept, *found) if isinstance(each, DamagedFile)],
        )

    def damaged(self) -> list[DamagedFile]:
        """Every file that is not used because it is not what was written; reads all records and metrics."""
        return self.scan(in_full=True)[1]

    def verified(self, run_id: str) -> Record | DamagedFile | None:
        """The record of a finished run whose spec and metrics are whole too; what is damaged; None without a record."""
        found = read_run(self.path / "runs" / run_id, self.files, metrics=True)
        return found[1] if isinstance(found, tuple) else found

    def set_aside(self, run_id: str) -> bool:
        """Set aside what is damaged of a finished run, so that it is done again; False while another process has it."""
        run = self.path / "runs" / run_id
        lock = Lock(run / "lock", self.files)
        if not lock.try_acquire():
            return False
        try:
            damaged = read_run(run, self.files, metrics=True)
            if isinstance(damaged, DamagedFile):
                set_aside_run(run, damaged, self.files)
        finally:
            lock.release()
        return True

    def rows(self, run_id: str) -> list[MetricRow]:
        """The metrics of a run, finished or not; unreadable lines are omitted."""
        return metrics.read_rows(self.path / "runs" / run_id / "metrics.jsonl", self.files)[0]

    def values(self, run_id: str) -> list[RowValues]:
        """Of every row of a run's metrics, the values that are looked at in all runs."""
        return metrics.read_values(self.path / "runs" / run_id / "metrics.jsonl", self.files)

    def metrics_state(self, run_id: str) -> FileState | None:
        """The version of a run's metrics, which are not read; None where there are none."""
        return self.files.state(self.path / "runs" / run_id / "metrics.jsonl")

    def record(self, run_id: str) -> Record | None:
        """The record of one run; None while it has no whole one."""
        found = read_run(self.path / "runs" / run_id, self.files)
        return found[1] if isinstance(found, tuple) else None

    def unfinished(self) -> list[str]:
        """Runs that have begun and have no record yet, sorted by run_id."""
        return [
            run.name
            for run in self._runs()
            if self._may_enter(run)
            and _is_file(run / "spec.json", self.files)
            and self.files.state(run / "record.json") is None
        ]

    def forget(self, run_id: str) -> bool:
        """Drop the record of a run so that it runs again; False while another process holds the run."""
        run = self.path / "runs" / run_id
        if self.files.state(run) is None:
            return True
        lock = Lock(run / "lock", self.files)
        if not lock.try_acquire():
            return False
        try:
            self.files.remove(run / "record.json")
            remove_tree(run / "checkpoint", self.files)
        finally:
            lock.release()
        return True

    def run_ids(self) -> list[str]:
        """All runs, finished or not, in order."""
        return [run.name for run in self._runs()]

    def begin_again(self) -> bool:
        """Forget all runs and decisions, of a study that has measured nothing; False while another process has a run.

        Where a process was killed meanwhile, calling it again does the rest.
        """
        for run in self._runs():
            lock = Lock(run / "lock", self.files)
            if not lock.try_acquire():
                return False
            try:
                for name in sorted(self.files.names(run)):  # a record before its spec
                    if name != "lock":
                        remove_tree(run / name, self.files)
            finally:
                lock.release()
        with self.locked():
            self._decisions_file.write(Decisions().as_json())
        return True

    def has_end(self, run_id: str) -> bool:
        """Whether the state that a run kept at its end exists."""
        return _is_file(self.path / "runs" / run_id / "end" / "state", self.files)

    def drop_end(self, run_id: str) -> None:
        """Free the state that a run kept at its end, once no more runs start from it."""
        remove_tree(self.path / "runs" / run_id / "end", self.files)

    def exclusive(self, on_wait: Callable[[str], None] = lambda owner: None) -> Lock:
        """A lock for measurements that need the device to themselves: `with store.exclusive():` waits for those of
        other processes that work on this study. `on_wait` is told who they are."""
        return Lock(self.path / _MEASURING, self.files, self.clock, on_wait=on_wait)

    def begin_notes(self, page: str) -> None:
        """Write notes.md once: an existing file is never overwritten, and a removed one is not written again."""
        if self.decisions().notes_digest is not None:
            return
        file = self.path / "notes.md"
        with self.locked():
            if self.files.state(file) is None:
                write_atomically(file, page, self.files)
        self.decide(Decisions(notes_digest=hashlib.sha256(page.encode()).hexdigest()))

    def notes(self) -> str | None:
        """The text of notes.md; None where there is no such file, empty while it has not been edited."""
        file = self.path / "notes.md"
        if not _is_file(file, self.files):
            return None
        content = self.files.read(file)
        made = self.decisions().notes_digest == hashlib.sha256(content).hexdigest()
        return "" if made else content.decode("utf-8", errors="replace")

    def locked(self) -> Lock:
        """The study's lock, under which the files of all runs are written; to be held for milliseconds."""
        return _lock(self.path, self.files, self.clock)

    def documents_lock(self) -> Lock:
        """The lock of whoever writes documents, to be held from before the records are read until all are written, so
        that no document is replaced by one that was made from earlier records."""
        return Lock(self.path / _DOCUMENTS, self.files, self.clock, wait_seconds=_LOCK_SECONDS)

    def write_tables(self, records: Sequence[tuple[Spec, Record]]) -> None:
        """Rewrite outcomes.csv and results.csv. Requires the documents' lock."""
        self.write_documents({"outcomes.csv": outcomes_csv(records), "results.csv": results_csv(records)})

    def write_documents(self, texts: Mapping[str, str]) -> None:
        """Replace documents of the study (report.html, training_plan.json, …), each as a whole, in this order.

        Requires the documents' lock. Raises StorageFailed where the disk would have little space left for runs.
        """
        for name, text in texts.items():
            # an error message may hold file names that are not valid UTF-8
            content = text.encode(errors="backslashreplace")
            require_space(self.path, len(content))
            with self.locked():
                write_atomically(self.path / name, content, self.files)

    def _runs(self) -> list[Path]:
        """The folders of all runs, finished or not, sorted by run_id."""
        runs = self.path / "runs"
        if self.files.state(runs) is None:
            return []
        found = [runs / name for name in self.files.names(runs)]
        return [run for run in found if (state := self.files.state(run)) is not None and state.kind == "folder"]

    def _may_enter(self, run: Path) -> bool:
        try:
            self.files.state(run / "spec.json")
        except PermissionError:
            return False
        return True

    def tidy(self) -> None:
        """Remove what killed writers left."""
        with self.locked():
            self._tidy()

    def _tidy(self) -> None:
        """Remove temporary files of killed writers, and checkpoints of runs killed between record and clean-up.

        Requires the study's lock.
        """
        remove_temporaries(self.path, self.files)
        for run in filter(self._may_enter, self._runs()):
            names = self.files.names(run)
            done = {"record.json", "checkpoint"} <= set(names)
            lock = Lock(run / "lock", self.files)
            if not (done or any(map(is_temporary, names))) or not lock.try_acquire():
                continue
            try:
                remove_temporaries(run, self.files)
                if done:
                    remove_tree(run / "checkpoint", self.files)
            finally:
                lock.release()


def _lock(path: Path, files: Files, clock: Clock) -> Lock:
    return Lock(path / _LOCK, files, clock, wait_seconds=_LOCK_SECONDS)


def _is_file(path: Path, files: Files) -> bool:
    state = files.state(path)
    return state is not None and state.kind == "file"


def _not_writable(path: Path, error: OSError) -> BatchlabError:
    return storage_failure(error, path) or InputError(
        f"The study folder {path} cannot be written ({error.strerror}); choose another with --out."
    )
