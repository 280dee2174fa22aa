"""One file from which a run can resume: the state's bytes, then a JSON line that describes them, then its length.

The state is written straight to the file, so a checkpoint needs no second copy of it in memory; what describes it is
known only after it. The file is replaced as a whole, so it is always the previous checkpoint or the new one. A file
that does not match its own digest, for example after a power cut, counts as missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchlab.core.files import Files, OpenFile
from batchlab.core.protocols import WriteState
from batchlab.storage.atomic import replacing
from batchlab.storage.files import DISK

_LENGTH_DIGITS = 20


def save_checkpoint(path: Path, header: Mapping[str, Any], write_state: WriteState, files: Files = DISK) -> None:
    """Replace the checkpoint. `header` is any JSON with a whole number `step`; it comes back from `load_checkpoint`.

    Raises StorageFailed where the disk cannot be written; the previous checkpoint then stays.
    """
    with replacing(path, files) as file:
        sink = _Digesting(file)
        write_state(sink)
        text = json.dumps(dict(header), sort_keys=True)
        described = {"header": text, "length": sink.length, "sha256": sink.digest_with(text)}
        line = json.dumps(described).encode()
        file.write(b"%s%0*d" % (line, _LENGTH_DIGITS, len(line)))


def load_checkpoint(path: Path, files: Files = DISK) -> tuple[dict[str, Any], bytes] | None:
    """Header and state as saved; None where there is no checkpoint or it is incomplete."""
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
    state = files.read(path, 0, length)
    if _digest(hashlib.sha256(state), text) != digest:
        return None
    header: dict[str, Any] = json.loads(text)
    return header, state


class _Digesting:
    """Passes bytes on to a file, and counts and digests them."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.length = 0

    def write(self, content: bytes) -> int:
        """Write all of it."""
        self._file.write(content)
        self._digest.update(content)
        self.length += memoryview(content).nbytes
        return memoryview(content).nbytes

    def flush(self) -> None:
        """Nothing is held back."""

    def digest_with(self, header: str) -> str:
        """Over everything written and the header."""
        return _digest(self._digest, header)


def _digest(state: Any, header: str) -> str:
    state.update(header.encode())
    return str(state.hexdigest())
