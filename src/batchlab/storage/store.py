"""A study's folder: the question, the measured decisions, the runs and the tables made from them.

Safe under kill -9, a full disk and two processes at once: files are replaced whole, what is shared is written under
the study's lock, and each run has a lock of its own (run_folder.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from batchlab.core.errors import BatchlabError, InputError, StudyChanged
from batchlab.core.experiment import SCHEMA_VERSION, Experiment, differing_fields
from batchlab.core.record import MetricRow, Record
from batchlab.core.spec import Spec
from batchlab.storage import metrics
from batchlab.storage.atomic import is_temporary, remove_temporaries, storage_errors, storage_failure, write_atomically
from batchlab.storage.decisions import Decisions
from batchlab.storage.run_folder import RunFolder, read_record, read_spec
from batchlab.storage.tables import outcomes_csv, results_csv

_LOCK = ".lock"
_MEASURING = ".measuring.lock"


class Store:
    """One study on disk. Make it with `Store.create` or `Store.open`."""

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path = path
        self.experiment = experiment

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether there is a study at `path`, of whatever experiment."""
        return (path / "experiment.json").is_file()

    @staticmethod
    def require_usable(path: Path) -> None:
        """Raise InputError where `path` is a file, a folder of something else, or cannot be written. Writes nothing."""
        try:
            if path.exists() and not path.is_dir():
                raise InputError(f"{path} is a file; give a folder for the study with --out.")
            if path.is_dir() and not Store.exists(path):
                entries = [entry for entry in path.iterdir() if entry.name != _LOCK and not is_temporary(entry)]
                if entries:
                    raise InputError(
                        f"{path} holds {min(entries).name!r} and is not a study (it has no experiment.json); "
                        "give a new folder with --out."
                    )
        except OSError as error:
            raise _not_writable(path, error) from None
        existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
            raise InputError(f"The study folder {path} cannot be made in {existing}; choose another with --out.")

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> Store:
        """The study at `path` for this experiment: a new folder, or an existing study of the same experiment.

        Raises InputError for a folder of something else or one that cannot be written, StudyChanged for a study of
        another experiment; in each case nothing has been written.
        """
        path = path.absolute()
        if not cls.exists(path):
            cls.require_usable(path)
            try:
                path.mkdir(parents=True, exist_ok=True)
                (path / _LOCK).touch()
            except OSError as error:
                raise _not_writable(path, error) from None
            with _lock(path):
                if not cls.exists(path):
                    write_atomically(path / "experiment.json", experiment.model_dump_json(indent=1) + "\n")
        store = cls.open(path)
        store.require_same(experiment)
        store._tidy()
        return store

    @classmethod
    def open(cls, path: Path) -> Store:
        """The study at `path`. Raises InputError where there is none, it is damaged, or a newer batchlab wrote it."""
        path = path.absolute()
        file = path / "experiment.json"
        try:
            values = json.loads(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                f"{path} is not a study: it has no experiment.json. "
                "Give the folder that `batchlab study` printed, by default studies/NAME."
            ) from None
        except PermissionError as error:
            raise InputError(f"{file} cannot be read ({error.strerror}); make it readable for you.") from None
        except (ValueError, RecursionError):
            raise InputError(f"{file} is damaged; restore it, or start a new study with --out.") from None
        version = values.get("schema_version") if isinstance(values, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise InputError(
                f"A newer batchlab made the study in {path} (schema {version}, this one reads {SCHEMA_VERSION}); "
                "update batchlab, or start a new study with --out."
            )
        try:
            return cls(path, Experiment.model_validate(values))
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
        with _lock(self.path):
            kept = self.decisions()
            joined = kept.joined(new)
            if joined != kept:
                write_atomically(self.path / "decisions.json", joined.as_json())
            return joined

    def decisions(self) -> Decisions:
        """All choices kept so far. Raises InputError where decisions.json is damaged."""
        file = self.path / "decisions.json"
        if not file.exists():
            return Decisions()
        try:
            return Decisions.model_validate_json(file.read_bytes())
        except ValidationError:
            raise InputError(f"{file} is damaged; restore it, or start a new study with --out.") from None

    def run(self, spec: Spec) -> RunFolder:
        """The folder of one run; nothing is created before it is locked."""
        return RunFolder(self.path, spec)

    def records(self) -> list[tuple[Spec, Record]]:
        """Every finished run, sorted by run_id."""
        found = []
        for run in sorted((self.path / "runs").glob("*")):
            record = read_record(run)
            if record is not None:
                found.append((read_spec(run), record))
        return found

    def rows(self, run_id: str) -> list[MetricRow]:
        """The metrics of a run, finished or not; unreadable lines are omitted."""
        return metrics.read_rows(self.path / "runs" / run_id / "metrics.jsonl")[0]

    def record(self, run_id: str) -> Record | None:
        """The record of one run; None while it is not finished."""
        return read_record(self.path / "runs" / run_id)

    def unfinished(self) -> list[str]:
        """Runs that have begun and have no record yet, sorted by run_id."""
        begun = sorted((self.path / "runs").glob("*/spec.json"))
        return [spec.parent.name for spec in begun if not (spec.parent / "record.json").exists()]

    def forget(self, run_id: str) -> bool:
        """Drop the record of a run so that it runs again; False while another process holds the run."""
        run = self.path / "runs" / run_id
        try:
            with FileLock(run / "lock", timeout=0):
                (run / "record.json").unlink(missing_ok=True)
                shutil.rmtree(run / "checkpoint", ignore_errors=True)
        except Timeout:
            return False
        return True

    def has_end(self, run_id: str) -> bool:
        """Whether the state that a run kept at its end exists."""
        return (self.path / "runs" / run_id / "end" / "state").exists()

    def drop_end(self, run_id: str) -> None:
        """Free the state that a run kept at its end, once no more runs start from it."""
        shutil.rmtree(self.path / "runs" / run_id / "end", ignore_errors=True)

    def exclusive(self) -> FileLock:
        """A lock for measurements that need the device to themselves: `with store.exclusive():` waits for those of
        other processes that work on this study."""
        return FileLock(self.path / _MEASURING)

    def begin_notes(self, page: str) -> None:
        """Write notes.md once: an existing file is never overwritten, and a removed one is not written again."""
        if self.decisions().notes_digest is not None:
            return
        file = self.path / "notes.md"
        with storage_errors(file), suppress(FileExistsError), file.open("x", encoding="utf-8") as new:
            new.write(page)
        self.decide(Decisions(notes_digest=hashlib.sha256(page.encode()).hexdigest()))

    def notes(self) -> str | None:
        """The text of notes.md; None where there is no such file, empty while it has not been edited."""
        file = self.path / "notes.md"
        if not file.is_file():
            return None
        content = file.read_bytes()
        made = self.decisions().notes_digest == hashlib.sha256(content).hexdigest()
        return "" if made else content.decode("utf-8", errors="replace")

    def write_tables(self) -> list[tuple[Spec, Record]]:
        """Rewrite outcomes.csv and results.csv from the records, which are returned; remove what killed writers left.

        Under the study's lock, so that no process overwrites a newer table with an older one.
        """
        self._tidy()
        with _lock(self.path):
            records = self.records()
            write_atomically(self.path / "outcomes.csv", outcomes_csv(records))
            write_atomically(self.path / "results.csv", results_csv(records))
        return records

    def write_text(self, name: str, text: str) -> Path:
        """Replace a document of the study (report.html, training_plan.json, …) as a whole."""
        path = self.path / name
        with _lock(self.path):
            write_atomically(path, text)
        return path

    def _tidy(self) -> None:
        """Remove temporary files of killed writers, and checkpoints of runs killed between record and clean-up."""
        for folder in (self.path, *self.path.glob("runs/*")):
            remove_temporaries(folder)
        for checkpoint in self.path.glob("runs/*/checkpoint"):
            run = checkpoint.parent
            with suppress(Timeout), FileLock(run / "lock", timeout=0):
                if (run / "record.json").exists():
                    shutil.rmtree(checkpoint, ignore_errors=True)


def _lock(path: Path) -> FileLock:
    """The study's lock, to be held for milliseconds."""
    return FileLock(path / _LOCK, timeout=60)


def _not_writable(path: Path, error: OSError) -> BatchlabError:
    return storage_failure(error, path) or InputError(
        f"The study folder {path} cannot be written ({error.strerror}); choose another with --out."
    )
