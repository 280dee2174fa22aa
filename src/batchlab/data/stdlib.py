"""The embedded text: the source of Python's standard library, read from the running installation.

Real text that every machine has; nothing is shipped or downloaded. The text depends on the Python version, which is
therefore part of its description, and two versions have different digests.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

from batchlab.core.errors import InputError
from batchlab.data.files import concatenated

LIMIT_BYTES = 10_000_000
_MIN_BYTES = 1_000_000
# Tests, demos, data tables and third-party packages, which are not library source.
_SKIPPED = {
    "__phello__",
    "__pycache__",
    "dist-packages",
    "encodings",
    "ensurepip",
    "idlelib",
    "lib-dynload",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}

Readers = dict[str, tuple[int, Callable[[], bytes]]]
"""Relative name → (size in bytes, function that reads it)."""


def standard_library_text(cache_dir: Path, library: Path | None = None) -> tuple[Path, str]:
    """Concatenate about 10 MB of source text into `cache_dir`, once; returns (file, description).

    `library` is the folder or zip file to read, by default the standard library of this interpreter. Raises InputError
    if it contains too little source text.
    """
    location = library or _library()
    readers = _in_zip(location) if location.is_file() else _in_folder(location)
    chosen: Readers = {}
    total = 0
    for name in sorted(readers):
        size, _ = readers[name]
        if total + size <= LIMIT_BYTES:
            chosen[name] = readers[name]
            total += size
    if total < _MIN_BYTES:
        raise InputError(
            "The default text, the source of Python's standard library, is missing from this Python (stripped or "
            "compiled); use your own text: --set data.path=FILE."
        )
    listing = "\n".join(f"{name} {size}" for name, (size, _) in chosen.items())
    identity = hashlib.sha256(listing.encode()).hexdigest()[:16]
    file = concatenated(cache_dir, f"stdlib-{platform.python_version()}-{identity}", (r for _, r in chosen.values()))
    return file, (
        f"Python {platform.python_version()} standard library ({file.stat().st_size / 1e6:.1f} MB, {len(chosen)} files)"
    )


def _library() -> Path:
    """The folder of the standard library, or the zip file from which an embedded Python imports it."""
    folder = Path(sysconfig.get_path("stdlib"))
    zips = (Path(entry) for entry in sys.path if Path(entry).name.startswith("python") and entry.endswith(".zip"))
    return next((file for file in zips if file.is_file()), folder) if not (folder / "os.py").is_file() else folder


def _in_folder(folder: Path) -> Readers:
    found: Readers = {}
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_library(name)]  # site-packages can be huge
        for path in (Path(parent, name) for name in files if name.endswith(".py")):
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size, path.read_bytes
    return found


def _in_zip(file: Path) -> Readers:
    with zipfile.ZipFile(file) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist() if info.filename.endswith(".py")}

    def reader(name: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with zipfile.ZipFile(file) as archive:
                return archive.read(name)

        return read

    return {name: (size, reader(name)) for name, size in sizes.items() if all(map(_is_library, name.split("/")[:-1]))}


def _is_library(folder: str) -> bool:
    return folder not in _SKIPPED and not folder.startswith(("config-", "."))
