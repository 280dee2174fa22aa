"""metrics.jsonl: one JSON object per line, one writer, any number of readers, safe under kill -9.

A killed writer leaves at most one torn line, at the end. The next writer starts with a newline, so that later rows are
readable; readers skip and count the torn line, and `rewind` rewrites the file without it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from batchlab.core.files import Files
from batchlab.core.record import MetricRow
from batchlab.storage.atomic import storage_errors, write_atomically
from batchlab.storage.files import DISK


class RowValues(TypedDict):
    """The values of a row that are looked at in every run of a study. To read them alone takes a third of the time."""

    step: int
    tokens: int
    train_loss: NotRequired[float | None]
    train_loss_max: NotRequired[float | None]
    val_loss: NotRequired[float | None]
    grad_norm: NotRequired[float | None]
    diagnostics: NotRequired[dict[str, float] | None]


_VALUES: TypeAdapter[RowValues] = TypeAdapter(RowValues)


class MetricsWriter:
    """Appends rows. A row is handed to the operating system when `write` returns and is on disk after `sync`."""

    def __init__(self, path: Path, files: Files = DISK) -> None:
        self.path = path
        with storage_errors(path):
            self._file = files.append(path)
            size = self._file.size()
            self._torn = size > 0 and self._file.read(size - 1, 1) != b"\n"

    def write(self, row: MetricRow) -> None:
        """Append one row. Raises StorageFailed where the disk cannot be written; earlier rows are kept."""
        line = _line(row)
        whole = b"\n" + line if self._torn else line
        self._torn = True  # until the whole line is written
        with storage_errors(self.path):
            self._file.write(whole)
        self._torn = False

    def sync(self) -> None:
        """Wait until all rows would survive a power cut."""
        with storage_errors(self.path):
            self._file.sync()

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()


class MetricsTail:
    """Rows as a writer in another process appends them. A file that was rewound is read again from its beginning."""

    def __init__(self, path: Path, files: Files = DISK) -> None:
        self._path = path
        self._files = files
        self._inode = self._offset = 0

    def rows(self) -> list[MetricRow]:
        """Complete rows since the last call; unreadable lines are skipped."""
        state = self._files.state(self._path)
        if state is None:
            return []
        if state.inode != self._inode or state.size < self._offset:
            self._inode, self._offset = state.inode, 0
        whole = self._files.read(self._path, self._offset).rpartition(b"\n")[0]
        self._offset += len(whole) + bool(whole)
        return _parse(whole)[0]


def read_rows(path: Path, files: Files = DISK) -> tuple[list[MetricRow], int]:
    """All readable rows in file order, and how many lines could not be read. A missing file has no rows."""
    return _parse(_content(path, files))


def read_values(path: Path, files: Files = DISK) -> list[RowValues]:
    """The values of all readable rows in file order. A missing file has none."""
    values = []
    for line in _content(path, files).split(b"\n"):
        with suppress(ValidationError):
            if line:
                values.append(_VALUES.validate_json(line))
    return values


def values_of(row: MetricRow) -> RowValues:
    """The values of a row that was read as a whole."""
    return _VALUES.validate_python(row.model_dump(include=set(RowValues.__annotations__)))


def _parse(content: bytes) -> tuple[list[MetricRow], int]:
    rows, unreadable = [], 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            rows.append(MetricRow.model_validate_json(line))
        except ValidationError:
            unreadable += 1
    return rows, unreadable


def rewind(path: Path, step: int, files: Files = DISK) -> int:
    """Drop rows beyond `step` and lines that cannot be read; returns how many of the latter there were.

    The file is rewritten atomically, and not touched where there is nothing to drop.
    """
    before = _content(path, files)
    rows, unreadable = _parse(before)
    content = b"".join(_line(row) for row in rows if row.step <= step)
    if before != content:
        write_atomically(path, content, files)
    return unreadable


def _content(path: Path, files: Files) -> bytes:
    """The file's bytes; none where it is missing or no file."""
    state = files.state(path)
    return files.read(path) if state is not None and state.kind == "file" else b""


def _line(row: MetricRow) -> bytes:
    return row.model_dump_json(exclude_none=True).encode() + b"\n"
