"""Token files: raw ids (`corpus.bin`) with a description next to them (`corpus.bin.json`).

Any program can memory-map the ids. The description holds what could otherwise be learned only by reading all ids (their
number, vocabulary and digest), and which tokenizer made them from which text.

A token file gets its name when it is complete. Until then it is `.corpus.bin.partial`, with its progress in
`.corpus.bin.partial.json`. An interrupted write is resumed from there after the digest of the partial ids has been
verified. The description is written before the file gets its name, so that ids never exist without it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from batchlab.core.batch import Frozen
from batchlab.core.errors import InputError
from batchlab.data.digests import sample_digest
from batchlab.data.tokens import TokenDigest, TokenSpan
from batchlab.storage.atomic import storage_errors, write_atomically

SAVE_BYTES = 16 * 2**20
"""Bytes of text between two saves: the most work that a kill can lose."""

_CHUNK = 1 << 22  # number of ids read at once


class TokenFileDescription(Frozen):
    """The description next to the ids: their format, number and digest, and their origin."""

    schema_version: Literal[1] = 1
    dtype: Literal["uint8", "uint16", "uint32"]
    tokens: int
    vocabulary: int
    digest: str
    sample_sha256: str
    mtime_ns: int
    tokenizer: str
    tokenizer_file: str | None
    tokenizer_digest: str
    text: str
    text_bytes: int
    text_digest: str


class Origin(Frozen):
    """What a token file is made from. A partial file is resumed only if its origin is the same."""

    dtype: Literal["uint8", "uint16", "uint32"]
    vocabulary: int
    tokenizer: str
    tokenizer_file: str | None
    tokenizer_digest: str
    text: str
    text_bytes: int
    text_digest: str


class _SavedProgress(Frozen):
    """Progress of a partial token file."""

    origin: Origin
    offset: int
    tokens: int
    digest: str


class DamagedTokenFile(InputError):
    """The ids do not match their description, or the description cannot be read."""


def description_path(path: Path) -> Path:
    """Path of the description that belongs to a token file."""
    return path.with_name(path.name + ".json")


def is_token_file(path: Path) -> bool:
    """Whether the file exists and has a description."""
    return path.is_file() and description_path(path).is_file()


def describe_token_file(path: Path) -> TokenFileDescription:
    """Read the description of a token file. Raises DamagedTokenFile if it is not valid."""
    description = description_path(path)
    try:
        return TokenFileDescription.model_validate_json(description.read_bytes())
    except ValidationError:
        raise DamagedTokenFile(
            f"{description.name}, which describes the ids in {path.name}, is damaged; rebuild both with `batchlab data "
            "prepare`, or delete it to read the ids without a description."
        ) from None


def open_token_file(path: Path) -> TokenSpan:
    """Memory-map the ids of a complete token file. Raises DamagedTokenFile if they do not match their description.

    Samples of the file are compared each time; all of it only if the modification time differs from the described one.
    """
    described = describe_token_file(path)
    dtype = np.dtype(described.dtype)
    stat = path.stat()
    expected = described.tokens * dtype.itemsize
    if stat.st_size != expected:
        raise _damaged(path, f"has {stat.st_size:,} bytes instead of {expected:,}")
    ids: npt.NDArray[Any] = np.memmap(path, dtype, mode="r") if expected else np.empty(0, dtype)
    touched = stat.st_mtime_ns != described.mtime_ns
    if sample_digest(path) != described.sample_sha256 or (touched and digest_of_ids(ids) != described.digest):
        raise _damaged(path, "does not match its digest")
    return TokenSpan(ids, described.digest, described.vocabulary)


def made_from(path: Path, origin: Origin) -> bool:
    """Whether a complete, undamaged token file with this origin exists at `path`."""
    if not is_token_file(path):
        return False
    try:
        open_token_file(path)
        described = describe_token_file(path)
    except DamagedTokenFile:
        return False
    return all(getattr(described, name) == value for name, value in origin)


def digest_of_ids(ids: npt.NDArray[Any]) -> str:
    """The digest of ids, computed in chunks."""
    digest = TokenDigest(ids.dtype)
    for start in range(0, len(ids), _CHUNK):
        digest.add(ids[start : start + _CHUNK])
    return digest.hexdigest()


def write_token_file(
    path: Path, origin: Origin, encoded: Callable[[int], Iterator[tuple[int, npt.NDArray[Any]]]]
) -> tuple[TokenFileDescription, int]:
    """Write the token file at `path`, resuming a partial one; returns (description, byte of the text it resumed from).

    `encoded(offset)` yields (end offset in the text, ids) from that byte on and must be deterministic. If several
    processes write the same file, one writes and the others wait. Raises StorageFailed if the file cannot be written.
    """
    with storage_errors(path), _exclusive(path) as partial:
        if made_from(path, origin):  # earlier, or meanwhile by another process
            _partial_path(path).unlink()
            _state_path(path).unlink(missing_ok=True)
            return describe_token_file(path), origin.text_bytes
        state = _state_path(path)
        offset, digest = _resume(partial, state, origin)
        resumed, unsaved, tokens = offset, offset, partial.tell() // np.dtype(origin.dtype).itemsize
        for end, ids in encoded(offset):
            stored = ids.astype(origin.dtype, copy=False)
            partial.write(stored.data)
            digest.add(stored)
            tokens += len(stored)
            if end - unsaved >= SAVE_BYTES:
                _flush(partial)
                saved = _SavedProgress(origin=origin, offset=end, tokens=tokens, digest=digest.hexdigest())
                write_atomically(state, saved.model_dump_json())
                unsaved = end
        _flush(partial)
        described = TokenFileDescription(
            **origin.model_dump(),
            tokens=tokens,
            digest=digest.hexdigest(),
            sample_sha256=sample_digest(_partial_path(path)),
            mtime_ns=os.fstat(partial.fileno()).st_mtime_ns,
        )
        path.unlink(missing_ok=True)  # an older file must not get the new description
        write_atomically(description_path(path), described.model_dump_json(indent=1) + "\n")
        os.replace(_partial_path(path), path)
        state.unlink(missing_ok=True)
    return described, resumed


@contextmanager
def _exclusive(path: Path) -> Iterator[BinaryIO]:
    """The partial file, locked and opened for appending. A second process waits here until the file is complete."""
    partial = _partial_path(path)
    while True:
        with partial.open("ab+") as file:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                same = os.fstat(file.fileno()).st_ino == partial.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                yield file
                return


def _resume(partial: BinaryIO, state: Path, origin: Origin) -> tuple[int, TokenDigest]:
    """(byte of the text to resume from, digest of the ids before it). Truncates the file to those ids."""
    dtype = np.dtype(origin.dtype)
    digest = TokenDigest(dtype)
    try:
        saved = _SavedProgress.model_validate_json(state.read_bytes())
    except (FileNotFoundError, ValidationError):
        saved = None
    if saved is not None and saved.origin == origin:
        partial.seek(0)
        left = saved.tokens
        while left and (content := partial.read(min(left, _CHUNK) * dtype.itemsize)):
            ids = np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)
            digest.add(ids)
            left -= len(ids)
        if not left and digest.hexdigest() == saved.digest:
            partial.truncate(saved.tokens * dtype.itemsize)
            partial.seek(0, os.SEEK_END)
            return saved.offset, digest
        digest = TokenDigest(dtype)
    partial.truncate(0)
    partial.seek(0)
    return 0, digest


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _partial_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _state_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial.json")


def _damaged(path: Path, how: str) -> DamagedTokenFile:
    return DamagedTokenFile(
        f"The token file {path.name} is damaged: it {how}. Rebuild it with `batchlab data prepare`."
    )
