"""What a host has: the program that engines/reach.py starts there, `python -m batchlab.engines.host_check`.

It imports nothing that workers need, so it answers at once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from batchlab.core.batch import Frozen
from batchlab.core.frameworks import SHIPPED
from batchlab.engines.cards import visible_cards
from batchlab.engines.resources import usable_cores
from batchlab.storage.files import DISK
from batchlab.storage.lock import owner

LOCK = "lock"
"""The file in the shared folder that the asking process has locked."""

MARK = b"batchlab-host "
"""What the line with the answer begins with; launchers may print others."""

_COMPARED = (*(shipped.library for shipped in SHIPPED.values() if shipped.library), "numpy")


class HostFacts(Frozen):
    """What a host has.

    name: its host name. cards: as CUDA_VISIBLE_DEVICES would list them. versions: of what results depend on. code: a
    digest of batchlab's source. sees_folder: the shared folder is there. sees_lock: and so is the lock on its file.
    """

    name: str
    cores: int
    cards: tuple[str, ...]
    versions: dict[str, str]
    code: str
    sees_folder: bool = True
    sees_lock: bool = True


def facts_of_this_host(folder: Path | None = None) -> HostFacts:
    """What this host has. `folder`: the one whose file `LOCK` another process has locked."""
    sees = folder is None or (folder / LOCK).is_file()
    return HostFacts(
        name=socket.gethostname(),
        cores=usable_cores(),
        cards=visible_cards(),
        versions={"Python": platform.python_version(), **{name: _version(name) for name in _COMPARED}},
        code=_code_digest(),
        sees_folder=sees,
        sees_lock=folder is None or (sees and _locked(folder / LOCK)),
    )


def main() -> None:
    """Print one line with the facts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--launched-in", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    facts = facts_of_this_host(parser.parse_args().folder)
    os.write(1, MARK + facts.model_dump_json().encode() + b"\n")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _code_digest() -> str:
    """Two installations of one version may differ: an editable one, for example."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _locked(path: Path) -> bool:
    held = DISK.try_lock(path, owner())
    if held is not None:
        held.release()
    return held is None


if __name__ == "__main__":
    main()
