"""Locks of a study: who may write a run or a shared file. The kernel gives a lock up however its process ends.

Each lock file names its owner, so that a process that waits in vain can say for whom.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from batchlab.core.clock import SYSTEM_CLOCK, Clock
from batchlab.core.errors import StorageFailed
from batchlab.core.files import Files, HeldLock
from batchlab.storage.atomic import is_temporary, storage_errors, temporary_name
from batchlab.storage.files import DISK

_POLL_SECONDS = 0.05
_TELL_SECONDS = 10.0
_PROBE = "lock-test"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ESTALE}


class Lock:
    """One lock file. `with lock:` waits for it, up to `wait_seconds` (None: as long as it takes).

    `on_wait` is called with the owner's name where it has to wait: at once, and every ten seconds from then on. Raises
    StorageFailed, naming the owner, where it waited in vain, and where the file system has no locks.
    """

    def __init__(
        self,
        path: Path,
        files: Files = DISK,
        clock: Clock = SYSTEM_CLOCK,
        *,
        wait_seconds: float | None = None,
        on_wait: Callable[[str], None] = lambda owner: None,
    ) -> None:
        self._path = path
        self._files = files
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._on_wait = on_wait
        self._held: HeldLock | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, not even this process."""
        with storage_errors(self._path):
            try:
                held = self._files.try_lock(self._path, owner())
            except OSError as error:
                _require_locking(error, self._path.parent)
                raise
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
        tell = self._clock.monotonic()
        while not self.try_acquire():
            if self._clock.monotonic() >= tell:
                self._on_wait(self.owner())
                tell += _TELL_SECONDS
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


def _require_locking(error: OSError, folder: Path) -> None:
    """Raise StorageFailed where an error says that the file system has no locks."""
    if error.errno in _NO_LOCKS:
        raise StorageFailed(
            f"The file system of {folder} cannot lock files ({error.strerror}), and without locks two processes could "
            "write one run. Put the study on a file system with flock (a local disk, or one mounted with locks) with "
            "--out."
        ) from error


def require_locks(folder: Path, files: Files = DISK) -> None:
    """Raise StorageFailed where files in `folder`, which exists, cannot be locked; OSError where none can be made.

    Leaves nothing behind, and removes what killed processes left.
    """
    left: list[str] = []
    with suppress(PermissionError):  # a folder may be written and not listed
        left = [name for name in files.names(folder) if name.startswith(f".{_PROBE}.") and is_temporary(name)]
    for name in left:
        _try_once(folder / name, files)
    _try_once(folder / temporary_name(_PROBE, os.getpid()), files)


def _try_once(probe: Path, files: Files) -> None:
    """Lock a file that is of no other use, and remove it."""
    try:
        held = files.try_lock(probe, owner())
    except OSError as error:
        with suppress(OSError):
            files.remove(probe)
        _require_locking(error, probe.parent)
        raise
    if held is not None:
        files.remove(probe)
        held.release()
