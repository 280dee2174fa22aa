"""One run's folder: spec, metrics, log, checkpoint and, written last, the record.

A process that writes here holds the run's lock. The kernel releases it however that process ends, so a run is never
stuck and never has two writers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from batchlab.core.errors import InputError
from batchlab.core.record import RECORD, MetricRow, Record
from batchlab.core.spec import SPEC, Spec, run_id
from batchlab.storage import checkpoint, metrics
from batchlab.storage.atomic import remove_temporaries, storage_errors, write_atomically


class RunFolder:
    """`runs/<run_id>/` of a study: all of `protocols.RunContext` except `progress` and `stop_requested`."""

    def __init__(self, study: Path, spec: Spec) -> None:
        self.spec = spec
        self.run_id = run_id(spec)
        self.path = study / "runs" / self.run_id
        self.cache_dir = study / "cache"
        self.repaired_lines = 0
        self._writer: metrics.MetricsWriter | None = None
        self._lock = FileLock(self.path / "lock", thread_local=False)

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
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                return False
        return True

    def unlock(self) -> None:
        """Close open files and release the run. Does nothing where it is not locked."""
        self.close()
        self._lock.release()

    def locked_by_another(self) -> bool:
        """Whether another process holds this run now."""
        if not self.path.exists():
            return False
        if not self.try_lock():
            return True
        self.unlock()
        return False

    def begin(self) -> Self:
        """Prepare the folder for an attempt. Requires the lock."""
        with storage_errors(self.path):
            self.cache_dir.mkdir(exist_ok=True)
            remove_temporaries(self.path)
            write_atomically(self.path / "spec.json", SPEC.dump_json(self.spec, indent=1))
        return self

    def row(self, row: MetricRow) -> None:
        """Append to metrics.jsonl."""
        if self._writer is None:
            self._writer = metrics.MetricsWriter(self.path / "metrics.jsonl")
        self._writer.write(row)

    def save_checkpoint(self, header: Mapping[str, Any], state: bytes) -> None:
        """Replace the checkpoint; the metrics up to it are synced to disk first."""
        if self._writer is not None:
            self._writer.sync()
        with storage_errors(self.path):
            self._checkpoint_path.parent.mkdir(exist_ok=True)
        checkpoint.save_checkpoint(self._checkpoint_path, header, state)

    def load_checkpoint(self) -> tuple[dict[str, Any], bytes] | None:
        """The last complete checkpoint, with the metrics rewound to its step; None, and no metrics, to start afresh."""
        self.close()
        if self._checkpoint_path.parent.exists():
            remove_temporaries(self._checkpoint_path.parent)
        found = checkpoint.load_checkpoint(self._checkpoint_path)
        path = self.path / "metrics.jsonl"
        if found is None:
            self.repaired_lines += metrics.read_rows(path)[1]
            path.unlink(missing_ok=True)
        else:
            self.repaired_lines += metrics.rewind(path, int(found[0]["step"]))
        return found

    def keep_end(self, header: Mapping[str, Any], state: bytes) -> None:
        """Keep the state at the end of this run; `finish` does not remove it."""
        with storage_errors(self.path):
            (self.path / "end").mkdir(exist_ok=True)
        checkpoint.save_checkpoint(self.path / "end" / "state", header, state)

    def end_of(self, run_id: str) -> tuple[dict[str, Any], bytes] | None:
        """The state that another run of this study kept at its end, or None."""
        return checkpoint.load_checkpoint(self.path.parent / run_id / "end" / "state")

    def log(self, text: str) -> None:
        """Append a line to log.txt."""
        with storage_errors(self.path), self.log_path.open("a", encoding="utf-8") as file:
            file.write(text.rstrip("\n") + "\n")

    def log_tail(self, characters: int = 400) -> str:
        """The end of log.txt in one line, for a record's reason."""
        lines = self.log_end(4 * characters).splitlines()
        return " | ".join(line.strip() for line in lines if line.strip())[-characters:]

    def log_end(self, size: int) -> str:
        """The last bytes of log.txt; empty where nothing was printed."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - size))
            return file.read().decode("utf-8", errors="replace")

    def finish(self, record: Record) -> None:
        """Write record.json, which marks the run as finished, then remove the checkpoint. Requires the lock."""
        if self._writer is not None:
            self._writer.sync()
        self.close()
        write_atomically(self.path / "record.json", RECORD.dump_json(record, indent=1))
        shutil.rmtree(self._checkpoint_path.parent, ignore_errors=True)

    def record(self) -> Record | None:
        """The record of a finished run, else None. Raises InputError where the file is not a record."""
        return read_record(self.path)

    def close(self) -> None:
        """Close metrics.jsonl; a later row opens it again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def read_record(run: Path) -> Record | None:
    """The record in a run's folder; None while there is none. Raises InputError where it is unreadable."""
    try:
        content = (run / "record.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        return RECORD.validate_json(content)
    except ValueError:
        raise _unreadable(run, "record.json") from None


def read_spec(run: Path) -> Spec:
    """The spec in a run's folder. Raises InputError where it is missing or unreadable."""
    try:
        return SPEC.validate_json((run / "spec.json").read_bytes())
    except (FileNotFoundError, ValueError):
        raise _unreadable(run, "spec.json") from None


def _unreadable(run: Path, name: str) -> InputError:
    return InputError(
        f"{run / name} is damaged or was written by a newer batchlab; update batchlab, or delete the folder {run.name} "
        "to repeat that run."
    )
