"""Digests of data files: read in full once for every version of a file, and by samples whenever it is used.

A version is a size, a modification time and an inode. What was read is remembered in a cache folder. A file that
changes without a new version (a failing disk) is noticed where a sampled block shows it, and by `damaged_files`, which
reads all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Container, Iterable
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from batchlab.core.batch import Frozen
from batchlab.core.record import FileDigest
from batchlab.storage.atomic import make_folders, remove_temporaries, storage_errors, write_atomically
from batchlab.storage.files import DISK
from batchlab.storage.kept import set_aside
from batchlab.storage.lock import Lock
from batchlab.storage.sealed import Broken, seal, unseal

_BLOCK, _BLOCKS = 1 << 16, 64  # sampled: 4 MiB, evenly spaced, the first and the last bytes among them
_SUFFIX = ".sha256"

Progress = Callable[[str, int, int], None]
"""Called with (current activity, bytes done, total bytes)."""


def no_progress(doing: str, done: int, total: int) -> None:
    """A Progress callback that does nothing."""


@cache  # once for each file and owner
def _print_waiting(file: Path, owner: str) -> None:
    print(f"waiting until {owner or 'another process'} has made {file}", flush=True)


told_of_waiting: ContextVar[Callable[[Path, str], None]] = ContextVar("told_of_waiting", default=_print_waiting)
"""Called with (file, owner), again and again, while this process waits because another one, the owner, makes files.
A person should read it once. A worker, whose output goes to a log, sends it to the study as a sign of life."""


class _Remembered(Frozen):
    """What a cache folder knows of a file."""

    file: str
    digest: FileDigest


def file_digest(path: Path, cache: Path, progress: Progress = no_progress) -> FileDigest:
    """The digest of the file as it is now, read in full unless this version of it was read before."""
    path = path.resolve()
    known = _recall(path, cache)
    if known is not None and known == _now(path, known.sha256):
        return known
    found = read_digest(path, progress)
    remember(path, found, cache)
    return found


def read_digest(path: Path, progress: Progress = no_progress) -> FileDigest:
    """The digest of the file, read in full."""
    digest, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        while read := file.read(1 << 20):
            digest.update(read)
            progress("reading", file.tell(), size)
    return _now(path, digest.hexdigest())


def remember(path: Path, digest: FileDigest, cache: Path) -> None:
    """Keep a file's digest in a cache folder, which is made."""
    known = _Remembered(file=_name(path.resolve(), cache), digest=digest)
    with storage_errors(cache):
        make_folders(cache)
        write_atomically(_memory(path, cache), seal(known.model_dump_json(indent=1)))


def damaged_files(cache: Path, names: Container[str] | None = None) -> tuple[int, list[Path]]:
    """How many files of a cache folder have a digest, and which of them are not what they were; reads all of them.

    names: only files of these names.
    """
    known = [found for found in (_read(path) for path in sorted(cache.glob(f".*{_SUFFIX}"))) if found is not None]
    there = [(cache / each.file, each.digest) for each in known if (cache / each.file).parent == cache]
    there = [(path, digest) for path, digest in there if path.is_file() and (names is None or path.name in names)]
    return len(there), [path for path, digest in there if read_digest(path).sha256 != digest.sha256]


def made_file(path: Path, content: Callable[[], Iterable[bytes]]) -> Path | None:
    """Make a file in a cache folder once, from content that can be made again.

    A file that is not what was written is set aside and made again; returns where the damaged one is now, if any. While
    another process makes files in this folder, `told_of_waiting` is told who that is, and this one waits.
    """
    cache = path.parent
    if _intact(path):
        return None
    with storage_errors(cache):
        make_folders(cache)
    making = Lock(cache / ".lock", on_wait=lambda owner: told_of_waiting.get()(path, owner))
    with making, storage_errors(cache):
        if _intact(path):  # made by another process meanwhile
            return None
        remove_temporaries(cache)
        # without a digest its writer was killed just before the end
        aside = None if _recall(path.resolve(), cache) is None else set_aside(path, DISK)
        write_atomically(path, content())
        remember(path, read_digest(path), cache)
    return aside


def _intact(path: Path) -> bool:
    known = _recall(path.resolve(), path.parent) if path.is_file() else None
    if known is None:
        return False
    if known == _now(path, known.sha256):
        return True
    found = read_digest(path)  # copied or touched, or damaged
    if found.sha256 != known.sha256:
        return False
    remember(path, found, path.parent)
    return True


def _now(path: Path, sha256: str) -> FileDigest:
    """The version and the samples of the file as it is now, beside the digest it is thought to have."""
    state = path.stat()
    return FileDigest(
        size=state.st_size,
        mtime_ns=state.st_mtime_ns,
        inode=state.st_ino,
        sha256=sha256,
        sample_sha256=sample_digest(path),
    )


def sample_digest(path: Path) -> str:
    """The digest of blocks of the file, evenly spaced; cheap enough for every time that it is opened."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        last = max(0, os.fstat(file.fileno()).st_size - _BLOCK)
        for start in sorted({last * block // (_BLOCKS - 1) for block in range(_BLOCKS)}):
            digest.update(os.pread(file.fileno(), _BLOCK, start))
    return digest.hexdigest()


def _recall(path: Path, cache: Path) -> FileDigest | None:
    known = _read(_memory(path, cache))
    return known.digest if known is not None and known.file == _name(path, cache) else None


def _read(memory: Path) -> _Remembered | None:
    try:
        return _Remembered.model_validate_json(unseal(memory.read_bytes()).content)
    except (FileNotFoundError, Broken, ValidationError):
        return None


def _memory(path: Path, cache: Path) -> Path:
    location = hashlib.sha256(_name(path.resolve(), cache).encode()).hexdigest()[:8]
    return cache / f".{path.name}-{location}{_SUFFIX}"


def _name(path: Path, cache: Path) -> str:
    """How a file is known in a cache folder: by its name where it lies there, so that both can be moved."""
    return path.name if path.parent == cache.resolve() else str(path)
