"""Locks of a study: who may write a run or a shared file. The kernel gives a lock up however its process ends.

Each lock file names its owner, so that a process that waits in vain can say for whom.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.errors import StorageFailed
from batchlab.core.files import Files, HeldLock
from batchlab.storage.atomic import storage_errors
from batchlab.storage.files import DISK

_POLL_SECONDS = 0.05
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ESTALE}


class Lock:
    """One lock file. `with lock:` waits for it, up to `wait_seconds` (None: as long as it takes).

    Raises StorageFailed, naming the owner, where it waited in vain, and where the file system has no locks.
    """

    def __init__(
        self, path: Path, files: Files = DISK, clock: Clock = SYSTEM_CLOCK, *, wait_seconds: float | None = None
    ) -> None:
        self._path = path
        self._files = files
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._held: HeldLock | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, not even this process."""
        with _locking_errors(self._path):
            held = self._files.try_lock(self._path, owner())
        if held is None:
            return False
        self._held = held
        return True

    def release(self) -> None:
        """Give it up; nothing happens where it is not held."""
        if self._held is not None:
            held, self._held = self._held, None
            held.release()

    def owner(self) -> str:
        """Who wrote their name into the lock file last; empty where nobody did."""
        try:
            return self._files.read(self._path, size=256).decode(errors="replace").strip()
        except OSError:
            return ""

    def __enter__(self) -> Self:
        deadline = None if self._wait_seconds is None else self._clock.monotonic() + self._wait_seconds
        while not self.try_acquire():
            if deadline is not None and self._clock.monotonic() >= deadline:
                raise StorageFailed(
                    f"{self._path} has been locked for {self._wait_seconds:g} seconds by "
                    f"{self.owner() or 'a process that gave no name'}. End or continue that process (it may be "
                    "stopped), and run the same command again."
                )
            self._clock.sleep(_POLL_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def owner() -> str:
    """How this process names itself in the locks that it holds."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def _locking_errors(path: Path) -> Iterator[None]:
    try:
        with storage_errors(path):
            yield
    except StorageFailed as failure:
        error = failure.__cause__
        if not isinstance(error, OSError) or error.errno not in _NO_LOCKS:
            raise
        raise StorageFailed(
            f"The file system of {path.parent} cannot lock files ({error.strerror}), and without locks two processes "
            "could write one run. Put the study on a file system with flock (a local disk, or one mounted with locks) "
            "with --out."
        ) from error


def require_locks(folder: Path, files: Files = DISK) -> None:
    """Raise StorageFailed where files in `folder`, which exists, cannot be locked. Leaves nothing behind."""
    probe = folder / f".lock-test-{os.getpid()}"
    lock = Lock(probe, files)
    try:
        lock.try_acquire()
    finally:
        lock.release()
        files.remove(probe)
