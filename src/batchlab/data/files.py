"""Files and folders as memory-mapped 1-D arrays of token ids, validated before training."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.data.digests import made_file

TEXT_SUFFIXES = frozenset(
    {".txt", ".text", ".md", ".rst", ".tokens", ".raw", ".tex", ".html", ".xml", ".csv", ".tsv", ".json", ".jsonl"}
    | {".py", ".c", ".h", ".cpp", ".js", ".ts", ".rs", ".go", ".java"}
)
BYTE_VOCABULARY = 256
_CHUNK = 16 * 2**20
_Array = npt.NDArray[Any]


def require_path(given: str | Path, what: str) -> Path:
    """The path with ~ expanded. Raises InputError if it does not exist or is not readable."""
    path = Path(given).expanduser()
    if not path.exists():
        raise InputError(f"There is no file or folder {str(given)!r} for the {what}; check the path.")
    if not os.access(path, os.R_OK):
        raise InputError(f"The {what} {str(given)!r} is not readable; check its permissions.")
    return path


def holds_ids(path: Path) -> bool:
    """Whether a path holds token ids (.npy, .bin) rather than text."""
    return path.suffix in {".npy", ".bin"}


def read_ids(path: Path, what: str, bin_dtype: str = "uint16") -> _Array:
    """Memory-map a .npy or .bin file of token ids. Only the file format is checked, not the ids.

    Raises InputError if the file is empty, is not a valid .npy file, or its size does not match `bin_dtype`.
    """
    if path.stat().st_size == 0:
        raise InputError(f"The {what} {path.name} is empty; use a file with token ids.")
    if path.suffix == ".npy":
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except ValueError as error:
            raise InputError(
                f"The {what} {path.name} is not a valid .npy file of numbers ({error}); write it with "
                "numpy.save(file, array_of_token_ids)."
            ) from None
    dtype = np.dtype(bin_dtype).newbyteorder("<")
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise InputError(
            f"The {what} {path.name} has {size:,} bytes, which is not a multiple of the {dtype.itemsize} bytes of "
            f"{bin_dtype}; set data.bin_dtype to the type it was written with, or write a .npy file."
        )
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def read_text_file(path: Path, what: str) -> _Array:
    """Memory-map the bytes of a UTF-8 file as token ids 0 … 255. Raises InputError naming the first invalid byte."""
    if path.stat().st_size == 0:
        raise InputError(f"The {what} {path.name} is empty; use a text file with content.")
    content: _Array = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    _require_utf8(content, path.name, what)
    return content


def text_files(folder: Path, what: str) -> list[Path]:
    """All non-empty, non-hidden text files below a folder, sorted by relative path. Raises InputError if none."""
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in TEXT_SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.stat().st_size
    ]
    if not found:
        raise InputError(
            f"The {what} folder {folder.name} contains no text; add non-empty files that end in .txt, .md, .jsonl or "
            "another text suffix, or name a single file."
        )
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def concatenate_folder(folder: Path, cache_dir: Path, what: str) -> Path:
    """All text of a folder in one file in `cache_dir`; rebuilt if a file's name, size or modification time changed."""
    files = text_files(folder, what)
    listing = hashlib.sha256(str(folder.resolve()).encode())
    for path in files:
        stat = path.stat()
        listing.update(f"\n{path.relative_to(folder).as_posix()} {stat.st_size} {stat.st_mtime_ns}".encode())

    def reader(path: Path) -> Callable[[], bytes]:
        def read() -> bytes:
            return read_text_file(path, what).tobytes()

        return read

    return concatenated(cache_dir, f"text-{listing.hexdigest()[:16]}", (reader(path) for path in files))


def concatenated(cache_dir: Path, name: str, readers: Iterable[Callable[[], bytes]]) -> Path:
    """Write all parts to `cache_dir/name.txt`, each terminated by a newline; once, and again where it was damaged.

    Raises StorageFailed if `cache_dir` cannot be written.
    """
    target = cache_dir / f"{name}.txt"

    def parts() -> Iterator[bytes]:
        for read in readers:
            content = read()
            yield content if content.endswith(b"\n") else content + b"\n"

    damaged = made_file(target, parts)
    if damaged is not None:  # into the log of the run that found it
        print(f"{target} was damaged: kept as {damaged.name}")
    return target


def _require_utf8(content: _Array, name: str, what: str) -> None:
    """Decode chunk by chunk; a character cut by the end of a chunk is decoded again with the next one."""
    start = 0
    while start < len(content):
        stop = min(start + _CHUNK, len(content))
        try:
            _, consumed = codecs.utf_8_decode(content[start:stop].data, "strict", stop == len(content))
        except UnicodeDecodeError as error:
            raise InputError(
                f"The {what} {name} is not UTF-8 text: byte {start + error.start:,} cannot be decoded. Convert it to "
                "UTF-8, or unpack it if it is compressed."
            ) from None
        start += consumed
