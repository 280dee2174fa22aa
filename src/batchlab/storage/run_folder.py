"""One run's folder: spec, metrics, log, checkpoint and, written last, the record.

A process that writes here holds the run's lock. The kernel releases it however that process ends, so a run is never
stuck and never has two writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from batchlab.core.errors import InputError
from batchlab.core.files import Files
from batchlab.core.protocols import WriteState
from batchlab.core.record import RECORD, MetricRow, Record
from batchlab.core.spec import SPEC, Spec, run_id
from batchlab.storage import checkpoint, metrics
from batchlab.storage.atomic import make_folders, remove_temporaries, remove_tree, storage_errors, write_atomically
from batchlab.storage.files import DISK
from batchlab.storage.lock import Lock


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

    def begin(self) -> Self:
        """Prepare the folder for an attempt. Requires the lock."""
        with storage_errors(self.path):
            self._files.make_folder(self.cache_dir)
            remove_temporaries(self.path, self._files)
            write_atomically(self.path / "spec.json", SPEC.dump_json(self.spec, indent=1), self._files)
        return self

    def row(self, row: MetricRow) -> None:
        """Append to metrics.jsonl."""
        if self._writer is None:
            self._writer = metrics.MetricsWriter(self.path / "metrics.jsonl", self._files)
        self._writer.write(row)

    def save_checkpoint(self, header: Mapping[str, Any], write_state: WriteState) -> None:
        """Replace the checkpoint; the metrics up to it are synced to disk first."""
        if self._writer is not None:
            self._writer.sync()
        with storage_errors(self.path):
            self._files.make_folder(self._checkpoint_path.parent)
        checkpoint.save_checkpoint(self._checkpoint_path, header, write_state, self._files)

    def load_checkpoint(self) -> tuple[dict[str, Any], bytes] | None:
        """The last complete checkpoint, with the metrics rewound to its step; None, and no metrics, to start afresh."""
        self.close()
        path = self.path / "metrics.jsonl"
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

    def end_of(self, run_id: str) -> tuple[dict[str, Any], bytes] | None:
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
        write_atomically(self.path / "record.json", RECORD.dump_json(record, indent=1), self._files)
        with storage_errors(self.path):
            remove_tree(self._checkpoint_path.parent, self._files)

    def record(self) -> Record | None:
        """The record of a finished run, else None. Raises InputError where the file is not a record."""
        return read_record(self.path, self._files)

    def close(self) -> None:
        """Close metrics.jsonl; a later row opens it again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def read_record(run: Path, files: Files = DISK) -> Record | None:
    """The record in a run's folder; None while there is none. Raises InputError where it is unreadable."""
    try:
        content = files.read(run / "record.json")
    except FileNotFoundError:
        return None
    try:
        return RECORD.validate_json(content)
    except ValueError:
        raise _unreadable(run, "record.json") from None


def read_spec(run: Path, files: Files = DISK) -> Spec:
    """The spec in a run's folder. Raises InputError where it is missing or unreadable."""
    try:
        return SPEC.validate_json(files.read(run / "spec.json"))
    except (FileNotFoundError, ValueError):
        raise _unreadable(run, "spec.json") from None


def _unreadable(run: Path, name: str) -> InputError:
    return InputError(
        f"{run / name} is damaged or was written by a newer batchlab; update batchlab, or delete the folder {run.name} "
        "to repeat that run."
    )
