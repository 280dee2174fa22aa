"""A text file in pieces that can be encoded one by one, in any number of threads, to the same ids as the whole.

A piece ends where white space follows something else. GPT-2's pattern, which cuts text into words before any merge,
ends a word at every such place whatever comes next: no alternative of it goes from anything else into white space, and
its one look-ahead is inside runs of white space, which are never cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from batchlab.core.errors import InputError

PIECE_BYTES = 64 * 2**10
BLOCK_BYTES = 2**20
LIMIT_BYTES = 16 * 2**20
_CUT = re.compile(r"(?<=\S)[ \n]")


def pieces(file: Path, start: int = 0, what: str = "text", piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, str]]:
    """(byte at which it ends, text) of the pieces from byte `start`, itself the end of one.

    InputError for bytes that are not UTF-8, naming the first, and for 16 MiB without a place to cut.
    """
    with file.open("rb") as source:
        source.seek(start)
        content, end, wanted = b"", start, piece_bytes
        while True:
            content += source.read(wanted - len(content))
            last = len(content) < wanted
            whole = _whole_characters(content, end, file.name, what, last=last)
            text = content[:whole].decode()
            cut = len(text) if last else _last_cut(text)
            if cut is None:
                if wanted >= LIMIT_BYTES:
                    raise InputError(
                        f"The {what} {file.name} has {wanted // 2**20} MiB without a space or a new line from byte "
                        f"{end:,} on; BPE is for text, so break its lines or use data.tokenizer=bytes."
                    )
                wanted *= 2
                continue
            if text:
                used = len(text[:cut].encode())
                content, end, wanted = content[used:], end + used, piece_bytes
                yield end, text[:cut]
            if last:
                return


def blocks(file: Path, start: int = 0, what: str = "text") -> Iterator[tuple[int, bytes]]:
    """(byte at which it ends, bytes) of whole characters, about a mebibyte each; InputError as for pieces."""
    with file.open("rb") as source:
        source.seek(start)
        content, end = b"", start
        while read := source.read(BLOCK_BYTES):
            content += read
            whole = _whole_characters(content, end, file.name, what, last=False)
            end += whole
            yield end, content[:whole]
            content = content[whole:]
        _whole_characters(content, end, file.name, what, last=True)


def _whole_characters(content: bytes, offset: int, name: str, what: str, *, last: bool) -> int:
    """How many of the bytes are whole characters: all, but for the beginning of one whose end was not read yet."""
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
    """Where the last white space begins that follows something else; looked for near the end first."""
    for width in (256, len(text)):
        found = [match.start() for match in _CUT.finditer(text, max(len(text) - width, 0))]
        if found:
            return found[-1]
    return None
