"""One file from which a run can resume: a JSON line that describes the state, then the state's bytes.

The file is replaced as a whole, so it is always the previous checkpoint or the new one. A file that does not match its
own digest, for example after a power cut, counts as missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchlab.core.files import Files
from batchlab.storage.atomic import write_atomically
from batchlab.storage.files import DISK


def save_checkpoint(path: Path, header: Mapping[str, Any], state: bytes, files: Files = DISK) -> None:
    """Replace the checkpoint. `header` is any JSON with a whole number `step`; it comes back from `load_checkpoint`.

    Raises StorageFailed where the disk cannot be written; the previous checkpoint then stays.
    """
    text = json.dumps(dict(header), sort_keys=True)
    line = json.dumps(
        {"step": int(header["step"]), "length": len(state), "sha256": _digest(text, state), "header": text}
    )
    write_atomically(path, (line.encode(), b"\n", state), files)


def load_checkpoint(path: Path, files: Files = DISK) -> tuple[dict[str, Any], bytes] | None:
    """Header and state as saved; None where there is no checkpoint or it is incomplete."""
    found = files.state(path)
    if found is None or found.kind != "file":
        return None
    first, _, state = files.read(path).partition(b"\n")
    try:
        line = json.loads(first)
        text, length, digest = str(line["header"]), int(line["length"]), str(line["sha256"])
    except (ValueError, KeyError, TypeError):
        return None
    if len(state) != length or _digest(text, state) != digest:
        return None
    header: dict[str, Any] = json.loads(text)
    return header, state


def _digest(text: str, state: bytes) -> str:
    digest = hashlib.sha256(text.encode())
    digest.update(b"\n")
    digest.update(state)
    return digest.hexdigest()
