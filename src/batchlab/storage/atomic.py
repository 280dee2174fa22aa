"""Files that are replaced as a whole: readers see the old or the new content, whatever kills the writer.

Content goes to a temporary file in the same folder, is synced to disk, and is then renamed over the old file. A writer
that was killed leaves its temporary file, but not the kernel's lock on it, so such files can be recognised and removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from batchlab.core.errors import StorageFailed

_SUFFIX = ".batchlab-tmp"
_LOCKED_BY_THEN = 1.0  # seconds after which a running writer has locked its temporary file

_STORAGE_FAILURES = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has reached your quota",
    errno.EROFS: "is read-only",
    errno.EIO: "reports errors",
}


def storage_failure(error: OSError, path: Path) -> StorageFailed | None:
    """The error for a disk that is full, over quota, read-only or broken; None for any other error."""
    state = _STORAGE_FAILURES.get(error.errno or 0)
    if state is None:
        return None
    return StorageFailed(
        f"The disk of {path} {state}; finished runs are kept. "
        "Free some space there (or make it writable) and run the same command again to continue."
    )


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise StorageFailed for a full, over-quota, read-only or broken disk; every other error passes through."""
    try:
        yield
    except OSError as error:
        failure = storage_failure(error, path)
        if failure is None:
            raise
        raise failure from error


def write_atomically(path: Path, content: bytes | str | Iterable[bytes]) -> None:
    """Replace `path` by `content`, or leave it as it was. Text is written as UTF-8.

    Raises StorageFailed where the disk cannot be written.
    """
    if isinstance(content, str):
        content = content.encode()
    chunks = (content,) if isinstance(content, bytes) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{_SUFFIX}")
    with storage_errors(path):
        try:
            with temporary.open("xb") as file:
                with suppress(OSError):  # on a file system without locks, leftovers stay
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def is_temporary(path: Path) -> bool:
    """Whether `path` is a temporary file of a writer, killed or still running."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


def remove_temporaries(folder: Path) -> None:
    """Delete what killed writers left in `folder`, not in its subfolders. Safe while other processes write there."""
    for path in folder.glob(f".*{_SUFFIX}"):
        with suppress(OSError), path.open("rb") as file:  # locked, or removed meanwhile
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - path.stat().st_mtime > _LOCKED_BY_THEN:
                path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot sync a folder; the rename itself has happened
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
