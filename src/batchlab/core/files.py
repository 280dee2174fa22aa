"""What a study does to a file system: few operations, each of which either happens or raises OSError.

The store, a run's folder and the metrics go through `Files` and nothing else, so that a simulation can run them on a
disk in memory that fills up, loses what was not synced, or stops the process between two operations.

What survives what: after `write` returns, the content is visible to every process and survives a kill of this one. It
survives a power cut once `sync` has returned. A file's name (`create`, `rename`, `remove`) survives a power cut once
`sync_folder` of its folder has returned. `rename` is atomic: a reader finds the old file or the new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Kind = Literal["file", "folder", "link", "other"]


class FileState(NamedTuple):
    """What is at a path. A symbolic link is described itself, not what it points to."""

    kind: Kind
    size: int
    mtime_ns: int
    inode: int


class OpenFile(Protocol):
    """A file open for writing, without a buffer of its own."""

    def write(self, content: bytes) -> None:
        """Write all of it at the end of the file."""

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from byte `start` on; fewer where the file ends."""

    def size(self) -> int:
        """Bytes in the file now."""

    def sync(self) -> None:
        """Return once the content would survive a power cut."""

    def close(self) -> None:
        """Free the handle. May be called twice."""


class HeldLock(Protocol):
    """A lock that this process holds."""

    def release(self) -> None:
        """Give it up. May be called twice."""


class Files(Protocol):
    """A file system. Every method may raise OSError; a missing file raises FileNotFoundError unless said otherwise.

    Nothing here writes through a symbolic link as the last part of a path; new files and folders follow the umask.
    """

    def state(self, path: Path) -> FileState | None:
        """What is at `path`; None where there is nothing."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted."""

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """The file's content from byte `start` on, at most `size` bytes of it. Follows symbolic links."""

    def create(self, path: Path) -> OpenFile:
        """A new, empty file. Raises FileExistsError where there is anything at `path`."""

    def append(self, path: Path) -> OpenFile:
        """The file at `path` open for appending, created where it is missing."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name in the same file system, replacing a file that has it."""

    def remove(self, path: Path) -> None:
        """Remove a file or link; nothing happens where it is missing."""

    def make_folder(self, path: Path) -> None:
        """Make one folder in an existing one; nothing happens where it is there. FileExistsError: not a folder."""

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder; nothing happens where it is missing."""

    def sync_folder(self, path: Path) -> None:
        """Return once the names in this folder would survive a power cut."""

    def writable(self, folder: Path) -> bool:
        """Whether this process may create files in an existing folder."""

    def make_temporary_folder(self) -> Path:
        """A new, empty folder outside the study, for this process alone; one that this process leaves behind when it is
        killed is removed by the next one that makes one."""

    def try_lock(self, path: Path, owner: str) -> HeldLock | None:
        """Lock the file at `path`, which is created, and write `owner` into it; None while anybody else holds it.

        "Anybody else" includes another handle of this process. The lock is given up by `release` or by the end of this
        process, however that comes. Raises OSError where the file system has no locks.
        """
