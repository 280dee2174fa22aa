"""A token file: ids one after the other (`corpus.bin`), and beside it what they are (`corpus.bin.json`).

Any program can map the ids. The description says what a reader would have to read all of them to know: number, largest
id, digest; and which tokenizer made them from which text.

A token file gets its name when it is whole. Until then it is `.corpus.bin.partial`, with how far it has come in
`.corpus.bin.partial.json`; whoever was killed is continued from there, after its ids were read through and their digest
is as noted. The description is there before the ids are, so ids are never without it.
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
from batchlab.data.tokens import TokenDigest, TokenSpan
from batchlab.storage.atomic import storage_errors, write_atomically

SAVE_BYTES = 16 * 2**20
"""Bytes of text between two memory_optimizations: what a kill can cost."""

_CHUNK = 1 << 22  # ids read at once


class TokenFileDescription(Frozen):
    """What stands beside the ids."""

    schema_version: Literal[1] = 1
    dtype: Literal["uint8", "uint16", "uint32"]
    tokens: int
    vocabulary: int
    digest: str
    mtime_ns: int
    tokenizer: str
    tokenizer_file: str | None
    tokenizer_digest: str
    text: str
    text_bytes: int
    text_digest: str


class Origin(Frozen):
    """What a token file is made from, which is also what a half-written one must agree in to be continued."""

    dtype: Literal["uint8", "uint16", "uint32"]
    vocabulary: int
    tokenizer: str
    tokenizer_file: str | None
    tokenizer_digest: str
    text: str
    text_bytes: int
    text_digest: str


class _Saved(Frozen):
    """How far a half-written token file has come."""

    origin: Origin
    offset: int
    tokens: int
    digest: str


class DamagedTokenFile(InputError):
    """The ids are not what their description says, or the description cannot be read."""


def description_path(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def is_token_file(path: Path) -> bool:
    """Whether a description stands beside the ids."""
    return path.is_file() and description_path(path).is_file()


def describe_token_file(path: Path) -> TokenFileDescription:
    """The description beside the ids. DamagedTokenFile where it cannot be read."""
    beside = description_path(path)
    try:
        return TokenFileDescription.model_validate_json(beside.read_bytes())
    except ValidationError:
        raise DamagedTokenFile(
            f"{beside.name}, which describes the ids in {path.name}, is damaged; make both again with `batchlab data "
            "prepare`, or delete it to have the ids read as they are."
        ) from None


def open_token_file(path: Path) -> TokenSpan:
    """The memory-mapped ids of a whole token file. DamagedTokenFile where they are not as described.

    The ids are read through only when the file was written to after its description.
    """
    described = describe_token_file(path)
    dtype = np.dtype(described.dtype)
    stat = path.stat()
    expected = described.tokens * dtype.itemsize
    if stat.st_size != expected:
        raise _damaged(path, f"has {stat.st_size:,} bytes where {expected:,} were written")
    ids: npt.NDArray[Any] = np.memmap(path, dtype, mode="r") if expected else np.empty(0, dtype)
    if stat.st_mtime_ns != described.mtime_ns and digest_of_ids(ids) != described.digest:
        raise _damaged(path, "holds other ids than were written")
    return TokenSpan(ids, described.digest, described.vocabulary)


def made_from(path: Path, origin: Origin) -> bool:
    """Whether a whole token file of this origin is at `path`."""
    if not is_token_file(path):
        return False
    try:
        open_token_file(path)
        described = describe_token_file(path)
    except DamagedTokenFile:
        return False
    return all(getattr(described, name) == value for name, value in origin)


def digest_of_ids(ids: npt.NDArray[Any]) -> str:
    """The digest of ids, read in pieces."""
    digest = TokenDigest(ids.dtype)
    for start in range(0, len(ids), _CHUNK):
        digest.add(ids[start : start + _CHUNK])
    return digest.hexdigest()


def write_token_file(
    path: Path, origin: Origin, encoded: Callable[[int], Iterator[tuple[int, npt.NDArray[Any]]]]
) -> tuple[TokenFileDescription, int]:
    """Write, or finish writing, the token file at `path`; (its description, the byte of the text it continued from).

    `encoded(offset)` gives (byte of the text at which they end, ids) from that byte on, the same ones each time. Of
    several processes one writes and the others wait for it. Raises StorageFailed when the disk takes no more.
    """
    with storage_errors(path), _alone(path) as partial:
        if made_from(path, origin):  # before, or by another process meanwhile
            _partial_path(path).unlink()
            _state_path(path).unlink(missing_ok=True)
            return describe_token_file(path), origin.text_bytes
        state = _state_path(path)
        offset, digest = _resume(partial, state, origin)
        begun, unsaved, tokens = offset, offset, partial.tell() // np.dtype(origin.dtype).itemsize
        for end, ids in encoded(offset):
            stored = ids.astype(origin.dtype, copy=False)
            partial.write(stored.data)
            digest.add(stored)
            tokens += len(stored)
            if end - unsaved >= SAVE_BYTES:
                _flush(partial)
                saved = _Saved(origin=origin, offset=end, tokens=tokens, digest=digest.hexdigest())
                write_atomically(state, saved.model_dump_json())
                unsaved = end
        _flush(partial)
        described = TokenFileDescription(
            **origin.model_dump(),
            tokens=tokens,
            digest=digest.hexdigest(),
            mtime_ns=os.fstat(partial.fileno()).st_mtime_ns,
        )
        path.unlink(missing_ok=True)  # an older one must not stand beside the new description
        write_atomically(description_path(path), described.model_dump_json(indent=1) + "\n")
        os.replace(_partial_path(path), path)
        state.unlink(missing_ok=True)
    return described, begun


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """The half-written file, opened at its end and locked: a second process waits here until it has got its name."""
    partial = _partial_path(path)
    while True:
        with partial.open("ab+") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                same = os.fstat(file.fileno()).st_ino == partial.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                yield file
                return


def _resume(partial: BinaryIO, state: Path, origin: Origin) -> tuple[int, TokenDigest]:
    """(byte of the text to go on from, digest of the ids before it); the file then ends with those ids."""
    dtype = np.dtype(origin.dtype)
    digest = TokenDigest(dtype)
    try:
        saved = _Saved.model_validate_json(state.read_bytes())
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
        f"The token file {path.name} is damaged: it {how}. Make it again with `batchlab data prepare`."
    )
