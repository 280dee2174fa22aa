"""Splits a text file into chunks that can be encoded independently, giving the same ids as the whole file.

A chunk ends where whitespace follows a non-whitespace character. GPT-2's pattern, which splits text into words before
any merge, always ends a word there: none of its alternatives continues from another character into whitespace, and its
only look-ahead is inside runs of whitespace, which are never split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from batchlab.core.errors import InputError

TEXT_CHUNK_BYTES = 64 * 2**10
RAW_CHUNK_BYTES = 2**20
MAX_CHUNK_BYTES = 16 * 2**20
_CUT = re.compile(r"(?<=\S)[ \n]")


def text_chunks(
    file: Path, start: int = 0, what: str = "text", chunk_bytes: int = TEXT_CHUNK_BYTES
) -> Iterator[tuple[int, str]]:
    """Yield (end offset in bytes, text) for each chunk, from byte `start`, which must be the end of a chunk.

    Raises InputError naming the first byte that is not UTF-8, or if 16 MiB of text cannot be split.
    """
    with file.open("rb") as source:
        source.seek(start)
        content, end, wanted = b"", start, chunk_bytes
        while True:
            content += source.read(wanted - len(content))
            last = len(content) < wanted
            whole = _whole_characters(content, end, file.name, what, last=last)
            text = content[:whole].decode()
            cut = len(text) if last else _last_cut(text)
            if cut is None:
                if wanted >= MAX_CHUNK_BYTES:
                    raise InputError(
                        f"The {what} {file.name} has {wanted // 2**20} MiB without a space or newline from byte "
                        f"{end:,} on; BPE is for text, so break its lines or use data.tokenizer=bytes."
                    )
                wanted *= 2
                continue
            if text:
                used = len(text[:cut].encode())
                content, end, wanted = content[used:], end + used, chunk_bytes
                yield end, text[:cut]
            if last:
                return


def raw_chunks(file: Path, start: int = 0, what: str = "text") -> Iterator[tuple[int, bytes]]:
    """Yield (end offset, bytes) for chunks of whole characters, about 1 MiB each. Raises InputError if not UTF-8."""
    with file.open("rb") as source:
        source.seek(start)
        content, end = b"", start
        while read := source.read(RAW_CHUNK_BYTES):
            content += read
            whole = _whole_characters(content, end, file.name, what, last=False)
            end += whole
            yield end, content[:whole]
            content = content[whole:]
        _whole_characters(content, end, file.name, what, last=True)


def _whole_characters(content: bytes, offset: int, name: str, what: str, *, last: bool) -> int:
    """Number of leading bytes that are whole characters: all but the start of a character not yet fully read."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        if not last and error.reason == "unexpected end of data":
            return error.start
        raise InputError(
            f"The {what} {name} is not UTF-8 text: byte {offset + error.start:,} cannot be decoded. Convert it to "
            "UTF-8, or unpack it if it is compressed."
        ) from None
    return len(content)


def _last_cut(text: str) -> int | None:
    """Start of the last whitespace that follows another character; searches near the end first."""
    for width in (256, len(text)):
        found = [match.start() for match in _CUT.finditer(text, max(len(text) - width, 0))]
        if found:
            return found[-1]
    return None
