"""One file from which a run can resume: the state's bytes, then a JSON line that describes them, then its length.

The state is written straight to the file and read from it piece by piece, so a checkpoint needs no second copy of it in
memory; what describes it is known only after it. The file is replaced as a whole, so it is always the previous
checkpoint or the new one. A file that does not match its own digest, for example after a power cut, counts as missing.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from batchlab.core.files import Files, OpenFile
from batchlab.core.protocols import WriteState
from batchlab.storage.atomic import replacing
from batchlab.storage.files import DISK

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LENGTH_DIGITS = 20
_PIECE = 1 << 20  # read at a time


def save_checkpoint(path: Path, header: Mapping[str, Any], write_state: WriteState, files: Files = DISK) -> None:
    """Replace the checkpoint. `header` is any JSON with a whole number `step`; it comes back from `load_checkpoint`.

    Raises StorageFailed where the disk cannot be written; the previous checkpoint then stays.
    """
    with replacing(path, files) as file:
        sink = _Digesting(file)
        try:
            write_state(sink)
        except Exception as error:
            if sink.failure is not None:  # torch.save raises a RuntimeError in place of what the file raised
                raise sink.failure from error
            raise
        text = json.dumps(dict(header), sort_keys=True)
        described = {"header": text, "length": sink.length, "sha256": sink.digest_with(text)}
        line = json.dumps(described).encode()
        file.write(b"%s%0*d" % (line, _LENGTH_DIGITS, len(line)))


def load_checkpoint(path: Path, files: Files = DISK) -> tuple[dict[str, Any], BinaryIO] | None:
    """Header and state as saved; None where there is no checkpoint or it is incomplete.

    The state was checked to its last byte and is read again, from the file, by whoever loads it. It holds no file open.
    """
    found = files.state(path)
    if found is None or found.kind != "file":
        return None
    end = found.size - _LENGTH_DIGITS
    digits = files.read(path, max(0, end))
    begin = end - int(digits) if digits.isdigit() else -1
    if begin < 0:
        return None
    try:
        described = json.loads(files.read(path, begin, end - begin))
        text, length, digest = str(described["header"]), int(described["length"]), str(described["sha256"])
    except (ValueError, KeyError, TypeError):
        return None
    if length != begin:
        return None
    state = _Beginning(path, length, files)
    if _digest(hashlib.file_digest(state, "sha256"), text) != digest:
        return None
    header: dict[str, Any] = json.loads(text)
    state.seek(0)
    return header, io.BufferedReader(state, _PIECE)


class _Digesting:
    """Passes bytes on to a file, and counts and digests them. `failure` is why the file took no more."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.length = 0
        self.failure: OSError | None = None

    def write(self, content: bytes) -> int:
        """Write all of it."""
        try:
            self._file.write(content)
        except OSError as error:
            self.failure = error
            raise
        self._digest.update(content)
        self.length += memoryview(content).nbytes
        return memoryview(content).nbytes

    def flush(self) -> None:
        """Nothing is held back."""

    def digest_with(self, header: str) -> str:
        """Over everything written and the header."""
        return _digest(self._digest, header)


class _Beginning(io.RawIOBase):
    """The first `length` bytes of a file, as a file of their own."""

    def __init__(self, path: Path, length: int, files: Files) -> None:
        self._path = path
        self._length = length
        self._files = files
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        into = memoryview(buffer).cast("B")
        wanted = max(0, min(len(into), self._length - self._position, _PIECE))
        found = self._files.read(self._path, self._position, wanted)
        into[: len(found)] = found
        self._position += len(found)
        return len(found)


def _digest(state: Any, header: str) -> str:
    state.update(header.encode())
    return str(state.hexdigest())
