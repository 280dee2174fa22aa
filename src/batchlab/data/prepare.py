"""Encodes text to token files, and caches tokenizers, token files and digests.

Everything derived from a text is stored next to it, in `.batchlab/`, or in `cache_dir` if the text's folder is
read-only. A token file is named by a hash of the text's content and the tokenizer. Memory use does not depend on the
size of the text.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.data.bpe import BPE, BYTES, END_OF_TEXT, read_gpt2, read_tokenizer, train_bpe, version
from batchlab.data.chunks import raw_chunks, text_chunks
from batchlab.data.digests import Progress, file_digest, made_file, no_progress
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
_CHUNKS_PER_CALL = 16  # encoded in parallel: 1 MiB of text, about 50 MB of the encoder's objects


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark about a cached file.

    `rebuilt`: the cached file was damaged. `unfilled`: the text had too few pairs to merge, so that the tokenizer has
    `ids` instead of the requested `vocabulary`.
    """

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
    """How text is encoded. With `bpe` None, the ids are the bytes of the text."""

    name: str
    bpe: BPE | None = None
    vocabulary: int = BYTES
    file: Path | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the BPE, or "bytes"."""
        return self.bpe.digest if self.bpe else "bytes"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared token file. `continued_from` is the byte of the text at which an earlier attempt was resumed."""

    path: Path
    description: TokenFileDescription
    continued_from: int = 0
    notices: tuple[Notice, ...] = ()


def text_cache_dir(text: Path, cache_dir: Path) -> Path:
    """`.batchlab` next to the text, or `cache_dir` if that folder is read-only.

    A folder without any write permission bit counts as read-only, even for root, who could write to it.
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
    """The tokenizer that `data.tokenizer` names: `bytes`, `bpe` (trained on `text`, or cached), or a path to its files.

    Raises InputError if it does not exist, if the tokenizers package is missing, or if `vocabulary` is too small.
    """
    if given == "bytes":
        made = Tokenizer("bytes")
    elif given == "bpe":
        made = _trained(
            text, text_cache_dir(text, cache_dir), vocabulary or DEFAULT_VOCABULARY, special_tokens, progress
        )
    else:
        path = Path(given).expanduser()
        if not path.exists():
            raise InputError(
                f"There is no tokenizer {given!r}; use bytes, bpe, a folder with vocab.json and merges.txt, or a "
                "tokenizer.json."
            )
        bpe = read_gpt2(path) if path.is_dir() else read_tokenizer(path)
        made = Tokenizer(path.name, bpe, bpe.vocabulary, path)
    if vocabulary is not None and vocabulary < made.vocabulary:
        raise InputError(
            f"The tokenizer {made.name} has {made.vocabulary:,} ids, but data.vocabulary is {vocabulary:,}; set it to "
            f"at least {made.vocabulary:,}, or use a smaller tokenizer."
        )
    return made


def cached_token_file(
    text: Path, tokenizer: Tokenizer, cache_dir: Path, what: str, progress: Progress = no_progress
) -> tuple[TokenSpan, tuple[Notice, ...]]:
    """(ids of a text, notices), encoded now or read from the cache if the content and the tokenizer are unchanged.

    A damaged token file is rebuilt, and a notice says so.
    """
    cache = text_cache_dir(text, cache_dir)
    digest = file_digest(text, cache, progress).sha256
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
    """Write the token file of a text to `path`, resuming an interrupted attempt.

    Raises InputError if the text is empty or not UTF-8, StorageFailed if it cannot be written.
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
        text_digest=file_digest(text, cache, progress).sha256,
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
    """Write a token file to a path of the user's choice, and its tokenizer next to it (`NAME.tokenizer.json`).

    Raises InputError if the path exists with other content or does not end in .bin, and in the cases of `prepare`.
    """
    if path.suffix != ".bin":
        raise InputError(f"The name of a token file must end in .bin, unlike {path.name}; use --out {path.stem}.bin.")
    _require_content(text, "text")
    cache = text_cache_dir(text, path.absolute().parent / ".batchlab")
    other = InputError(f"{path} exists with other content; choose another name with --out, or delete it.")
    made = describe_token_file(path) if is_token_file(path) else None
    if path.exists() and (made is None or made.text_digest != file_digest(text, cache, progress).sha256):
        raise other  # before a tokenizer is trained
    found = find_tokenizer(
        tokenizer, text, cache, vocabulary=vocabulary, special_tokens=special_tokens, progress=progress
    )
    if made is not None and made.tokenizer_digest != found.digest:
        raise other
    if found.bpe is not None:
        beside = path.with_name(f"{path.stem}.tokenizer.json")
        with storage_errors(beside):
            beside.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(beside, found.bpe.text)
        found = replace(found, file=beside)
    return prepare(text, path, found, cache, progress=progress)


def _require_content(text: Path, what: str) -> None:
    if text.stat().st_size == 0:
        raise InputError(f"The {what} {text.name} is empty; use a text file with content.")


def _encoded(text: Path, offset: int, bpe: BPE | None, what: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    if bpe is None:
        for end, content in raw_chunks(text, offset, what):
            yield end, np.frombuffer(content, np.uint8)
        return
    chunks = text_chunks(text, offset, what)
    while several := list(islice(chunks, _CHUNKS_PER_CALL)):
        yield several[-1][0], bpe.encode([chunk for _, chunk in several])


def _trained(
    text: Path, cache: Path, vocabulary: int, special_tokens: tuple[str, ...], progress: Progress
) -> Tokenizer:
    """A BPE trained on the text, cached under a hash of everything it depends on."""
    digest = file_digest(text, cache, progress).sha256
    asked = f"{digest} {vocabulary} {special_tokens} {version()}"
    file = cache / f"bpe-{vocabulary}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    size = text.stat().st_size

    def texts() -> Iterator[str]:
        for end, chunk in text_chunks(text):
            progress("training the BPE", end, size)
            yield chunk

    def trained() -> Iterator[bytes]:
        yield train_bpe(texts(), vocabulary, special_tokens).text.encode()

    notices = (Notice("rebuilt", file.name),) if made_file(file, trained) else ()
    bpe = read_tokenizer(file)
    return Tokenizer(f"BPE {vocabulary:,}", bpe, vocabulary, file, notices + _unfilled(bpe, vocabulary, text))


def _unfilled(bpe: BPE, vocabulary: int, text: Path) -> tuple[Notice, ...]:
    if bpe.vocabulary == vocabulary:
        return ()
    return (Notice("unfilled", text.name, bpe.vocabulary, vocabulary),)
