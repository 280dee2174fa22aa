"""Files that are replaced as a whole: readers see the old or the new content, whatever kills the writer.

Content goes to a temporary file in the same folder, is synced to disk, and is then renamed over the old file. Whoever
writes in a folder holds that folder's lock, so temporary files that are there when the lock is taken belong to nobody.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from batchlab.core.errors import StorageFailed
from batchlab.core.files import Files, OpenFile
from batchlab.storage.files import DISK

_SUFFIX = ".batchlab-tmp"

_STORAGE_FAILURES = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "has reached your quota",
    errno.EROFS: "is read-only",
    errno.EIO: "reports errors",
    errno.ESTALE: "lost its server",
}


def storage_failure(error: OSError, path: Path) -> StorageFailed | None:
    """The error for a disk that is full, over quota, read-only, gone or broken; None for any other error."""
    state = _STORAGE_FAILURES.get(error.errno or 0)
    if state is None:
        return None
    return StorageFailed(
        f"The disk of {path} {state}; finished runs are kept. "
        "Free some space there (or make it writable) and run the same command again to continue."
    )


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise StorageFailed for whatever a file system refuses to do in a study."""
    try:
        yield
    except OSError as error:
        raise storage_failure(error, path) or _refusal(error, path) from error


def _refusal(error: OSError, path: Path) -> StorageFailed:
    there = error.filename or path
    match error.errno:
        case errno.ELOOP | errno.EEXIST:
            return StorageFailed(
                f"{there} is a symbolic link, or something else is where batchlab needs a file or folder of its own; "
                "it does not write through links inside a study. Replace or remove it and run the same command again."
            )
        case errno.EACCES | errno.EPERM:
            return StorageFailed(
                f"{there} is not accessible ({error.strerror}). Make it readable and writable for you (a shared study "
                "needs a common group and umask 002) and run the same command again."
            )
        case errno.EMFILE | errno.ENFILE:
            return StorageFailed(
                f"{there} cannot be opened ({error.strerror}); finished runs are kept. Raise the limit (ulimit -n) or "
                "close other programs, and run the same command again to continue."
            )
        case _:
            return StorageFailed(
                f"{there} cannot be used ({error.strerror or error}); finished runs are kept. Check the folder, and "
                "run the same command again to continue."
            )


def write_atomically(path: Path, content: bytes | str | Iterable[bytes], files: Files = DISK) -> None:
    """Replace `path` by `content`, or leave it as it was. Text is written as UTF-8.

    Raises StorageFailed where the disk cannot be written.
    """
    if isinstance(content, str):
        content = content.encode()
    chunks = (content,) if isinstance(content, bytes) else content
    with replacing(path, files) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def replacing(path: Path, files: Files = DISK) -> Iterator[OpenFile]:
    """A new file that replaces `path` at the end of the block; after an error `path` is left as it was.

    Raises StorageFailed where the disk cannot be written.
    """
    with storage_errors(path):
        temporary, file = _create_temporary(path, files)
        try:
            try:
                yield file
                file.sync()
            finally:
                file.close()
            files.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                files.remove(temporary)
            raise
        files.sync_folder(path.parent)


def temporary_name(name: str, number: int) -> str:
    """The name of a file that belongs to nobody once its writer has ended."""
    return f".{name}.{number}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a file of this name is the temporary file of a writer, killed or still running."""
    return name.startswith(".") and name.endswith(_SUFFIX)


def remove_temporaries(folder: Path, files: Files = DISK) -> None:
    """Delete what killed writers left in `folder`, not in its subfolders. Requires its lock."""
    for name in files.names(folder):
        if is_temporary(name):
            files.remove(folder / name)


def make_folders(path: Path, files: Files = DISK) -> None:
    """Make a folder and the missing ones above it, and sync their names.

    Raises FileExistsError where one of them is something else.
    """
    missing = []
    for folder in (path, *path.parents):
        if files.state(folder) is not None:
            break
        missing.append(folder)
    for folder in reversed(missing or [path]):
        files.make_folder(folder)
        files.sync_folder(folder.parent)


def remove_tree(path: Path, files: Files = DISK) -> None:
    """Remove a folder with everything in it; a symbolic link is removed itself. Nothing happens where it is missing."""
    found = files.state(path)
    if found is None:
        return
    if found.kind != "folder":
        files.remove(path)
        return
    for name in files.names(path):
        remove_tree(path / name, files)
    files.remove_folder(path)


@contextmanager
def scratch_folder(files: Files = DISK) -> Iterator[Path]:
    """A folder outside every study, which is removed at the end of the block."""
    folder = files.make_temporary_folder()
    try:
        yield folder
    finally:
        remove_tree(folder, files)


@contextmanager
def shared_scratch(beside: Path) -> Iterator[Path]:
    """A folder next to a study, where other hosts see it too; removed at the end. The study need not exist yet."""
    existing = next(parent for parent in beside.absolute().parents if parent.is_dir())
    with storage_errors(existing):
        scratch = Path(tempfile.mkdtemp(prefix=".batchlab-", dir=existing))
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def _create_temporary(path: Path, files: Files) -> tuple[Path, OpenFile]:
    """A new file beside `path`. Its name is counted up, not drawn: a simulation repeats it."""
    for number in count():
        temporary = path.with_name(temporary_name(path.name, number))
        with suppress(FileExistsError):
            return temporary, files.create(temporary)
    raise AssertionError("count() does not end")
