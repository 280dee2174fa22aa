"""`Files` on a real disk."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from batchlab.core.files import FileState, Kind

_NEW_FILE, _NEW_FOLDER = 0o666, 0o777  # less the umask
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_CHUNK = 1 << 20
_TEMPORARY = ".batchlab-tmp-"
_OWNER_BYTES = 256  # a lock file keeps its size, so that naming its owner takes no space on a full disk


class DiskFile:
    """A descriptor opened for appending."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, content: bytes) -> None:
        """Write all of it at the end of the file."""
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from byte `start` on."""
        return os.pread(self._descriptor, size, start)

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """Wait for the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class DiskLock:
    """An exclusive flock, which the kernel gives up when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(descriptor)

    def release(self) -> None:
        """Give the lock up."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            _held.discard(descriptor)
            os.close(descriptor)


_held: set[int] = set()
"""Descriptors of the locks of this process. A forked child shares them and would keep the locks after its parent's
death, so it closes its copies at once."""


_temporary_folders: dict[Path, int] = {}
"""Temporary folders of this process, and the descriptors that keep them locked."""


def _forget_parents_locks() -> None:
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()
    _temporary_folders.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


class DiskFiles:
    """The file system of this machine."""

    def state(self, path: Path) -> FileState | None:
        """What is at `path`; None where there is nothing."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
        return FileState(kind, found.st_size, found.st_mtime_ns, found.st_ino)

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(folder))

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """The file's content from byte `start` on, at most `size` bytes of it."""
        with path.open("rb", buffering=0) as file:
            if start:
                file.seek(start)
            return file.read() if size is None else _read_up_to(file.fileno(), size)

    def create(self, path: Path) -> DiskFile:
        """A new, empty file."""
        return DiskFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_FILE))

    def append(self, path: Path) -> DiskFile:
        """The file at `path` open for appending, created where it is missing."""
        return DiskFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _NEW_FILE))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file or link."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Make one folder in an existing one."""
        try:
            os.mkdir(path, _NEW_FOLDER)
        except FileExistsError:
            found = self.state(path)
            if found is None or found.kind != "folder":
                raise

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        with suppress(FileNotFoundError):
            os.rmdir(path)
        descriptor = _temporary_folders.pop(path, None)
        if descriptor is not None:
            _held.discard(descriptor)
            os.close(descriptor)

    def sync_folder(self, path: Path) -> None:
        """Wait until renames in this folder are on disk, where the file system can tell."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):  # network file systems without it
                raise
        finally:
            os.close(descriptor)

    def writable(self, folder: Path) -> bool:
        """Whether this process may create files in a folder."""
        return os.access(folder, os.W_OK | os.X_OK)

    def make_temporary_folder(self) -> Path:
        """A new, empty folder in the system's place for temporary files.

        It is locked until it is removed, so that the next process to make one knows which were left by the dead, and
        removes those.
        """
        _remove_abandoned(Path(tempfile.gettempdir()))
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
            try:
                descriptor = _lock_folder(folder)
            except (BlockingIOError, FileNotFoundError):  # another process is removing it, since nobody had locked it
                continue
            except OSError:  # folders cannot be locked here, so nobody removes it either
                return folder
            if _is_at(descriptor, folder):
                _held.add(descriptor)
                _temporary_folders[folder] = descriptor
                return folder
            os.close(descriptor)

    def try_lock(self, path: Path, owner: str) -> DiskLock | None:
        """Lock the file at `path` with flock."""
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _NEW_FILE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_at(descriptor, path):  # removed meanwhile: a lock on it would exclude nobody
                    os.close(descriptor)
                    continue
                with suppress(OSError):  # the name is a courtesy: a full disk must not keep a run from its lock
                    os.pwrite(descriptor, owner.encode().ljust(_OWNER_BYTES), 0)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            return DiskLock(descriptor)


def _lock_folder(folder: Path) -> int:
    """A descriptor that keeps a folder locked. Raises BlockingIOError where another process has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(place: Path) -> None:
    """Remove the temporary folders of this user's processes that ended without removing them."""
    for folder in place.glob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            found = os.lstat(folder)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU:
                descriptor = _lock_folder(folder)
                shutil.rmtree(folder, ignore_errors=True)  # the last of its processes may still be writing
                os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _read_up_to(descriptor: int, size: int) -> bytes:
    parts, left = [], size
    while left and (part := os.read(descriptor, min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


DISK = DiskFiles()
