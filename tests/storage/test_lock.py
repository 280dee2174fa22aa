"""A lock names its owner, and a file system without locks is told at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from batchlab.core.errors import StorageFailed
from batchlab.storage.files import DISK, DiskFiles, DiskLock
from batchlab.storage.lock import Lock, owner, require_locks


class NoLocks(DiskFiles):
    """A disk that answers every lock with one error."""

    def __init__(self, number: int) -> None:
        self.number = number

    def try_lock(self, path: Path, owner: str) -> DiskLock | None:
        raise OSError(self.number, os.strerror(self.number), str(path))


class FakeClock:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ESTALE, errno.EINVAL])
def test_a_file_system_without_locks_is_said(tmp_path: Path, number: int) -> None:
    with pytest.raises(StorageFailed, match="cannot lock files") as caught:
        require_locks(tmp_path, NoLocks(number))
    assert "--out" in str(caught.value)
    with pytest.raises(StorageFailed, match="cannot lock files"), Lock(tmp_path / "lock", NoLocks(number)):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "not accessible"),
        (errno.EPERM, "not accessible"),
        (errno.EIO, "reports errors"),
        (errno.EMFILE, "ulimit"),
        (errno.ENXIO, "cannot be used"),
    ],
)
def test_other_errors_of_locking_are_said_too(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(StorageFailed, match=words):
        Lock(tmp_path / "lock", NoLocks(number)).try_acquire()


def test_locks_that_work_leave_nothing(tmp_path: Path) -> None:
    require_locks(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_who_waits_in_vain_is_told_for_whom(tmp_path: Path) -> None:
    path, clock = tmp_path / "lock", FakeClock()
    told: list[str] = []
    with Lock(path), pytest.raises(StorageFailed, match=f"60 seconds by process {os.getpid()} on "):
        Lock(path, clock=clock, wait_seconds=60, on_wait=told.append).__enter__()
    assert clock.seconds >= 60
    assert set(told) == {owner()}
    assert len(told) >= 6, "a worker that waits is not silent"
    with Lock(path, clock=clock, wait_seconds=0):
        pass


def test_a_holder_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = DISK.try_lock(path, "")
    assert held is not None
    assert Lock(path).owner() == ""
    with pytest.raises(StorageFailed, match="a process that gave no name"):
        Lock(path, clock=FakeClock(), wait_seconds=1).__enter__()
    held.release()
