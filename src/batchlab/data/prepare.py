"""Text to token file, once: with which tokenizer, where it is kept, and when it can be used again.

What is made from a text lies beside it, in `.batchlab/`, named by a hash of the text's content and of the tokenizer's;
in `cache_dir` where the text's folder may not be written. Memory does not grow with the text.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from batchlab.core.batch import Frozen
from batchlab.core.errors import InputError
from batchlab.data.bpe import BPE, BYTES, END_OF_TEXT, read_gpt2, read_tokenizer, train_bpe, version
from batchlab.data.pieces import blocks, pieces
from batchlab.data.token_file import (
    DamagedTokenFile,
    Origin,
    TokenFileDescription,
    describe_token_file,
    is_token_file,
    open_token_file,
    write_token_file,
)
from batchlab.data.tokens import TokenSpan
from batchlab.storage.atomic import storage_errors, write_atomically

DEFAULT_VOCABULARY = 10_000
_AT_ONCE = 16  # pieces given to the encoder's threads together: a mebibyte of text, some 50 MB of its objects

Progress = Callable[[str, int, int], None]
"""(what is being done, bytes of text done, bytes in all)."""


def no_progress(doing: str, done: int, total: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to know about a file that was made. rebuilt: the kept one was damaged. unfilled: the text had too few
    pairs to merge, `ids` of the `vocabulary` asked for."""

    kind: Literal["rebuilt", "unfilled"]
    file: str
    ids: int = 0
    vocabulary: int = 0

    def __str__(self) -> str:
        if self.kind == "rebuilt":
            return f"{self.file} was damaged and rebuilt"
        return f"{self.file}: {self.ids:,} of {self.vocabulary:,} ids"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """How text becomes ids; `bpe` None: its bytes are the ids."""

    name: str
    bpe: BPE | None = None
    vocabulary: int = BYTES
    file: Path | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def digest(self) -> str:
        return self.bpe.digest if self.bpe else "bytes"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A token file, and what a person should know of how it came about."""

    path: Path
    description: TokenFileDescription
    continued_from: int = 0
    notices: tuple[Notice, ...] = ()


class _TextDigest(Frozen):
    """The digest of a text, good while its size and time are the same."""

    size: int
    mtime_ns: int
    sha256: str


def text_digest(text: Path, cache: Path, progress: Progress = no_progress) -> str:
    """sha256 of a text's content, kept in `cache` and taken from there while its size and time are the same."""
    place = hashlib.sha256(str(text.resolve()).encode()).hexdigest()[:8]
    kept, state = cache / f"{text.name}-{place}.sha256.json", text.stat()
    try:
        known = _TextDigest.model_validate_json(kept.read_bytes())
        if (known.size, known.mtime_ns) == (state.st_size, state.st_mtime_ns):
            return known.sha256
    except (FileNotFoundError, ValidationError):
        pass
    digest = hashlib.sha256()
    with text.open("rb") as file:
        while read := file.read(2**20):
            digest.update(read)
            progress("reading", file.tell(), state.st_size)
    found = _TextDigest(size=state.st_size, mtime_ns=state.st_mtime_ns, sha256=digest.hexdigest())
    with storage_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, found.model_dump_json() + "\n")
    return found.sha256


def cache_beside(text: Path, cache_dir: Path) -> Path:
    """`.batchlab` beside the text, or `cache_dir` where that folder may not be written.

    A folder without any write permission counts as read-only for an administrator too, who could write it.
    """
    folder = text.resolve().parent
    writable = os.access(folder, os.W_OK | os.X_OK) and folder.stat().st_mode & (
        stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    )
    return folder / ".batchlab" if writable else cache_dir


def find_tokenizer(
    given: str,
    text: Path,
    cache_dir: Path,
    *,
    vocabulary: int | None,
    special_tokens: tuple[str, ...],
    progress: Progress = no_progress,
) -> Tokenizer:
    """The tokenizer of `data.tokenizer`: bytes; bpe, trained on `text` or kept from before; or read from its files.

    InputError where there is no such thing, the tokenizers package is missing, or the vocabulary is too small for it.
    """
    if given == "bytes":
        made = Tokenizer("bytes")
    elif given == "bpe":
        made = _trained(text, cache_beside(text, cache_dir), vocabulary or DEFAULT_VOCABULARY, special_tokens, progress)
    else:
        path = Path(given).expanduser()
        if not path.exists():
            raise InputError(
                f"There is no tokenizer {given!r}; possible are bytes, bpe, a folder with vocab.json and merges.txt, "
                "and a tokenizer.json."
            )
        bpe = read_gpt2(path) if path.is_dir() else read_tokenizer(path)
        made = Tokenizer(path.name, bpe, bpe.vocabulary, path)
    if vocabulary is not None and vocabulary < made.vocabulary:
        raise InputError(
            f"The tokenizer {made.name} has {made.vocabulary:,} ids, and the vocabulary is to be {vocabulary:,} "
            f"(data.vocabulary); give at least {made.vocabulary:,}, or a tokenizer with fewer."
        )
    return made


def cached_token_file(
    text: Path, tokenizer: Tokenizer, cache_dir: Path, what: str, progress: Progress = no_progress
) -> tuple[TokenSpan, tuple[Notice, ...]]:
    """The ids of a text and what was noticed: made now, or as they were made before from the same content.

    One that is damaged is made again, which is said.
    """
    cache = cache_beside(text, cache_dir)
    digest = text_digest(text, cache, progress)
    key = hashlib.sha256(f"{digest} {tokenizer.digest} {tokenizer.vocabulary}".encode()).hexdigest()[:16]
    path = cache / f"{text.stem}-{key}.bin"
    notices: tuple[Notice, ...] = ()
    if is_token_file(path):
        try:
            return open_token_file(path), notices
        except DamagedTokenFile:
            notices = (Notice("rebuilt", path.name),)
            path.unlink()
    prepare(text, path, tokenizer, cache, what, progress)
    return open_token_file(path), notices


def prepare(
    text: Path,
    path: Path,
    tokenizer: Tokenizer,
    cache: Path,
    what: str = "text",
    progress: Progress = no_progress,
) -> Prepared:
    """Write the token file of a text to `path`, going on where an earlier attempt was stopped.

    Raises InputError for text that is empty or not UTF-8, StorageFailed when the disk takes no more.
    """
    _require_content(text, what)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    origin = Origin(
        dtype="uint8" if tokenizer.bpe is None else "uint16" if tokenizer.vocabulary <= 2**16 else "uint32",
        vocabulary=tokenizer.vocabulary,
        tokenizer=tokenizer.name,
        tokenizer_file=tokenizer.file.name if tokenizer.file else None,
        tokenizer_digest=tokenizer.digest,
        text=text.name,
        text_bytes=text.stat().st_size,
        text_digest=text_digest(text, cache, progress),
    )

    def encoded(offset: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        for end, ids in _encoded(text, offset, tokenizer.bpe, what):
            progress("encoding", end, origin.text_bytes)
            yield end, ids

    described, continued_from = write_token_file(path, origin, encoded)
    return Prepared(path, described, continued_from, tokenizer.notices)


def prepare_to(
    text: Path,
    path: Path,
    tokenizer: str,
    *,
    vocabulary: int | None = None,
    special_tokens: tuple[str, ...] = (END_OF_TEXT,),
    progress: Progress = no_progress,
) -> Prepared:
    """Write a token file where a person wants it, and its tokenizer beside it (`NAME.tokenizer.json`).

    InputError where something else is there already, for a name that does not end in .bin, and as for `prepare`.
    """
    if path.suffix != ".bin":
        raise InputError(f"A token file ends in .bin, and {path.name} does not; give --out {path.stem}.bin.")
    _require_content(text, "text")
    cache = cache_beside(text, path.absolute().parent / ".batchlab")
    found = find_tokenizer(
        tokenizer, text, cache, vocabulary=vocabulary, special_tokens=special_tokens, progress=progress
    )
    made = describe_token_file(path) if is_token_file(path) else None
    asked = (found.digest, text_digest(text, cache, progress))
    if path.exists() and (made is None or (made.tokenizer_digest, made.text_digest) != asked):
        raise InputError(f"{path} exists and holds something else; give another name with --out, or delete it.")
    if found.bpe is not None:
        beside = path.with_name(f"{path.stem}.tokenizer.json")
        with storage_errors(beside):
            beside.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(beside, found.bpe.text)
        found = replace(found, file=beside)
    return prepare(text, path, found, cache, progress=progress)


def _require_content(text: Path, what: str) -> None:
    if text.stat().st_size == 0:
        raise InputError(f"The {what} {text.name} is empty; give a text file with content.")


def _encoded(text: Path, offset: int, bpe: BPE | None, what: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    if bpe is None:
        for end, content in blocks(text, offset, what):
            yield end, np.frombuffer(content, np.uint8)
        return
    found = pieces(text, offset, what)
    while several := list(islice(found, _AT_ONCE)):
        yield several[-1][0], bpe.encode([piece for _, piece in several])


def _trained(
    text: Path, cache: Path, vocabulary: int, special_tokens: tuple[str, ...], progress: Progress
) -> Tokenizer:
    """A BPE of the text, kept beside it under a hash of all it depends on."""
    digest = text_digest(text, cache, progress)
    asked = f"{digest} {vocabulary} {special_tokens} {version()}"
    file = cache / f"bpe-{vocabulary}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    notices: tuple[Notice, ...] = ()
    if file.is_file():
        try:
            kept = read_tokenizer(file)
        except InputError:
            notices = (Notice("rebuilt", file.name),)
        else:
            return Tokenizer(f"BPE {vocabulary:,}", kept, vocabulary, file, _unfilled(kept, vocabulary, text))
    size = text.stat().st_size

    def texts() -> Iterator[str]:
        for end, piece in pieces(text):
            progress("training the BPE", end, size)
            yield piece

    bpe = train_bpe(texts(), vocabulary, special_tokens)
    with storage_errors(cache):
        write_atomically(file, bpe.text)
    return Tokenizer(f"BPE {vocabulary:,}", bpe, vocabulary, file, notices + _unfilled(bpe, vocabulary, text))


def _unfilled(bpe: BPE, vocabulary: int, text: Path) -> tuple[Notice, ...]:
    if bpe.vocabulary == vocabulary:
        return ()
    return (Notice("unfilled", text.name, bpe.vocabulary, vocabulary),)
