"""One run's folder: spec, metrics, log, checkpoint and, written last, the record.

A process that writes here holds the run's lock. The kernel releases it however that process ends, so a run is never
stuck and never has two writers.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import ValidationError

from batchlab.core.errors import InputError, StorageFailed
from batchlab.core.files import Files, FileState
from batchlab.core.protocols import WriteState
from batchlab.core.record import RECORD, MetricRow, Record
from batchlab.core.spec import SPEC, Spec, run_id
from batchlab.storage import checkpoint, metrics
from batchlab.storage.atomic import make_folders, remove_temporaries, remove_tree, storage_errors, write_atomically
from batchlab.storage.files import DISK
from batchlab.storage.kept import read_file, set_aside
from batchlab.storage.lock import Lock
from batchlab.storage.sealed import Broken, Damage, DamagedFile, digest, seal, unseal

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.EIO}

RECORD_NAME, SPEC_NAME, METRICS_NAME = "record.json", "spec.json", "metrics.jsonl"


class RunFolder:
    """`runs/<run_id>/` of a study: all of `protocols.RunContext` except `progress` and `stop_requested`."""

    def __init__(self, study: Path, spec: Spec, files: Files = DISK) -> None:
        self.spec = spec
        self.run_id = run_id(spec)
        self.path = study / "runs" / self.run_id
        self.cache_dir = study / "cache"
        self.repaired_lines = 0
        self._writer: metrics.MetricsWriter | None = None
        self._files = files
        self._lock = Lock(self.path / "lock", files)

    @property
    def log_path(self) -> Path:
        """What the run printed, and the traceback of an error."""
        return self.path / "log.txt"

    @property
    def _spec_text(self) -> bytes:
        return SPEC.dump_json(self.spec, indent=1)

    @property
    def _metrics_path(self) -> Path:
        return self.path / METRICS_NAME

    @property
    def _checkpoint_path(self) -> Path:
        return self.path / "checkpoint" / "state"

    def try_lock(self) -> bool:
        """Claim the run for this process; False when another process has it."""
        with storage_errors(self.path):
            make_folders(self.path, self._files)
        return self._lock.try_acquire()

    def unlock(self) -> None:
        """Close open files and release the run. Does nothing where it is not locked."""
        self.close()
        self._lock.release()

    def locked_by_another(self) -> bool:
        """Whether another process holds this run now."""
        if self._files.state(self.path) is None:
            return False
        if not self.try_lock():
            return True
        self.unlock()
        return False

    def owner(self) -> str:
        """Who locked this run last; empty where nobody gave a name."""
        return self._lock.owner()

    def begin(self) -> Self:
        """Prepare the folder for an attempt. Requires the lock."""
        with storage_errors(self.path):
            self._files.make_folder(self.cache_dir)
            remove_temporaries(self.path, self._files)
            found = read_run(self.path, self._files)
            if isinstance(found, DamagedFile):
                set_aside_run(self.path, found, self._files)
            write_atomically(self.path / SPEC_NAME, self._spec_text, self._files)
        return self

    def row(self, row: MetricRow) -> None:
        """Append to metrics.jsonl."""
        if self._writer is None:
            self._writer = metrics.MetricsWriter(self._metrics_path, self._files)
        self._writer.write(row)

    def save_checkpoint(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Replace the checkpoint; the metrics up to it are synced to disk first."""
        if self._writer is not None:
            self._writer.sync()
        with storage_errors(self.path):
            self._files.make_folder(self._checkpoint_path.parent)
        checkpoint.save_checkpoint(self._checkpoint_path, header, write_state, self._files)

    def load_checkpoint(self) -> tuple[dict[str, Any], BinaryIO] | None:
        """The last complete checkpoint, with the metrics rewound to its step; None, and no metrics, to start afresh."""
        self.close()
        path = self._metrics_path
        with storage_errors(self.path):
            if self._files.state(self._checkpoint_path.parent) is not None:
                remove_temporaries(self._checkpoint_path.parent, self._files)
            found = checkpoint.load_checkpoint(self._checkpoint_path, self._files)
            if found is None:
                self.repaired_lines += metrics.read_rows(path, self._files)[1]
                self._files.remove(path)
            else:
                self.repaired_lines += metrics.rewind(path, int(found[0]["step"]), self._files)
        return found

    def keep_end(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Keep the state at the end of this run; `finish` does not remove it."""
        with storage_errors(self.path):
            self._files.make_folder(self.path / "end")
        checkpoint.save_checkpoint(self.path / "end" / "state", header, write_state, self._files)

    def end_of(self, run_id: str) -> tuple[dict[str, Any], BinaryIO] | None:
        """The state that another run of this study kept at its end, or None."""
        return checkpoint.load_checkpoint(self.path.parent / run_id / "end" / "state", self._files)

    def log(self, text: str) -> None:
        """Append a line to log.txt."""
        with storage_errors(self.path):
            file = self._files.append(self.log_path)
            try:
                file.write((text.rstrip("\n") + "\n").encode(errors="backslashreplace"))
            finally:
                file.close()

    def log_tail(self, characters: int = 400) -> str:
        """The end of log.txt in one line, for a record's reason."""
        lines = self.log_end(4 * characters).splitlines()
        return " | ".join(line.strip() for line in lines if line.strip())[-characters:]

    def log_end(self, size: int) -> str:
        """The last bytes of log.txt; empty where nothing was printed."""
        found = self._files.state(self.log_path)
        if found is None or found.kind != "file":
            return ""
        return self._files.read(self.log_path, max(0, found.size - size)).decode("utf-8", errors="replace")

    def finish(self, record: Record) -> None:
        """Write record.json, which marks the run as finished, then remove the checkpoint. Requires the lock."""
        if self._writer is not None:
            self._writer.sync()
        self.close()
        with storage_errors(self.path):
            belonging = {"spec": digest(self._spec_text)}  # as it was meant, not as a disk may have damaged it since
            if self._files.state(self._metrics_path) is not None:
                belonging["metrics"] = digest(self._files.read(self._metrics_path))
            # whoever made these folders may have been killed before it synced their names
            self._files.sync_folder(self.path.parent)
            self._files.sync_folder(self.path.parent.parent)
        text = RECORD.dump_json(record, indent=1).decode()
        write_atomically(self.path / RECORD_NAME, seal(text, belonging), self._files)
        with storage_errors(self.path):
            remove_tree(self._checkpoint_path.parent, self._files)

    def record(self) -> Record | None:
        """The record of a finished run; None where there is no whole one."""
        found = read_run(self.path, self._files)
        return found[1] if isinstance(found, tuple) else None

    def close(self) -> None:
        """Close metrics.jsonl; a later row opens it again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def read_run(run: Path, files: Files = DISK, *, metrics: bool = False) -> tuple[Spec, Record] | DamagedFile | None:
    """Spec and record of a run's folder; None while it has no record; what is damaged where one of the two is.

    Both are whole where their digests are right and both belong to the run that the folder is named after. `metrics`:
    check the metrics as well. Raises InputError where another version of batchlab wrote them: one whose files cannot be
    read here, or whose whole spec had another run_id.
    """
    path = run / RECORD_NAME
    another_version = InputError(
        f"{run} was written by another version of batchlab; use that version, or delete that folder to repeat the run."
    )
    try:
        content = read_file(path, files)
        if content is None:
            return None
        sealed = unseal(content)
        record = RECORD.validate_json(sealed.content)
        path = run / METRICS_NAME
        if metrics and "metrics" in sealed.others:
            _whole(path, sealed.others["metrics"], files)
        path = run / SPEC_NAME
        spec = SPEC.validate_json(_whole(path, sealed.others["spec"], files))
    except Broken as broken:
        return DamagedFile(path, broken.damage)
    except (ValidationError, KeyError):
        raise another_version from None
    if record.run_id != run.name:
        return DamagedFile(run / RECORD_NAME, Damage.OTHER_RUN)
    if run_id(spec) != run.name:  # the record holds the spec's digest, so nobody has changed it since
        raise another_version
    return spec, record


def look_at_run(run: Path, files: Files, *, metrics: bool) -> tuple[Spec, Record] | DamagedFile | None:
    """`read_run` for whoever reads all runs: one that cannot be read, or whose record was set aside, is damaged too."""
    try:
        return read_run(run, files, metrics=metrics) or _set_aside_before(run, files)
    except (OSError, StorageFailed) as error:
        cause = error.__cause__ if isinstance(error, StorageFailed) else error
        if isinstance(cause, OSError) and cause.errno in _UNREADABLE:
            return DamagedFile(run / RECORD_NAME, Damage.UNREADABLE)
        raise


class KnownRuns:
    """Looks at finished runs, and reads those that were whole again only once their record or spec has changed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[Path, tuple[list[FileState | None], tuple[Spec, Record]]] = {}

    def __call__(self, run: Path) -> tuple[Spec, Record] | DamagedFile | None:
        """As `look_at_run` without metrics."""
        states, known = self._states(run), self._known.get(run)
        if known is not None and known[0] == states:
            return known[1]
        found = look_at_run(run, self._files, metrics=False)
        if isinstance(found, tuple) and states is not None:
            self._known[run] = (states, found)
        return found

    def _states(self, run: Path) -> list[FileState | None] | None:
        """The versions of record and spec; None where the folder cannot be entered."""
        with suppress(OSError):
            return [self._files.state(run / name) for name in (RECORD_NAME, SPEC_NAME)]
        return None


def _set_aside_before(run: Path, files: Files) -> DamagedFile | None:
    names = files.names(run)
    if RECORD_NAME in names or not any(name.startswith(f"{RECORD_NAME}.damaged") for name in names):
        return None
    return DamagedFile(run / RECORD_NAME, Damage.SET_ASIDE)


def _whole(path: Path, expected: str, files: Files) -> bytes:
    """The content of a file with this digest. Raises Broken where there is no such file."""
    content = read_file(path, files)
    if content is None:
        raise Broken(Damage.MISSING)
    if digest(content) != expected:
        raise Broken(Damage.OTHER_DIGEST)
    return content


def read_spec(run: Path, files: Files = DISK) -> Spec | None:
    """The spec of a run, finished or not; None where there is no readable one of this run."""
    try:
        content = read_file(run / SPEC_NAME, files)
        spec = None if content is None else SPEC.validate_json(content)
    except (Broken, ValidationError):
        return None
    return spec if spec is not None and run_id(spec) == run.name else None


def set_aside_run(run: Path, damaged: DamagedFile, files: Files = DISK) -> None:
    """Rename the damaged file, and the record, so that the run is done again. Requires the run's lock."""
    with storage_errors(run):
        if damaged.path.name != RECORD_NAME:
            set_aside(damaged.path, files)
        set_aside(run / RECORD_NAME, files)
