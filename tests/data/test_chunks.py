"""Chunks of a text add up to the text, end at word boundaries, and can be read from any of their ends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.data import chunks as module
from batchlab.data.bpe import train_bpe
from batchlab.data.chunks import RAW_CHUNK_BYTES, raw_chunks, text_chunks

ALPHABET = st.sampled_from([*list("ab1.'s \n\t\r"), "\xa0", "\u2003", "\x85", "\x1c", "é", "中", "😀", "<|endoftext|>"])
TEXTS = st.lists(ALPHABET, max_size=200).map("".join)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(text=TEXTS, chunk_bytes=st.integers(4, 40))
@SHARED
def test_encoding_in_chunks_equals_encoding_the_whole(tmp_path: Path, text: str, chunk_bytes: int) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    bpe = train_bpe(["aa bb ab\n\n  ab 11 's"], 270)
    file = tmp_path / "t.txt"
    file.write_bytes(text.encode())
    found = list(text_chunks(file, chunk_bytes=chunk_bytes))
    assert "".join(chunk for _, chunk in found) == text
    assert bpe.encode([chunk for _, chunk in found]).tolist() == bpe.encode([text]).tolist()
    for end, _ in found[:3]:
        assert text.encode()[:end].decode() + "".join(c for _, c in text_chunks(file, end)) == text


@given(text=TEXTS)
@SHARED
def test_raw_chunks_are_the_bytes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes(text.encode())
    assert b"".join(chunk for _, chunk in raw_chunks(file)) == text.encode()


def test_raw_chunks_end_at_characters_and_can_be_resumed(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    content = ("a" + "é" * RAW_CHUNK_BYTES).encode()  # the first chunk would end inside a character
    file.write_bytes(content)
    found = list(raw_chunks(file))
    assert found[0][0] == RAW_CHUNK_BYTES - 1
    assert found[-1][0] == len(content)
    assert list(raw_chunks(file, found[0][0])) == [(end, chunk) for end, chunk in raw_chunks(file, RAW_CHUNK_BYTES - 1)]
    assert b"".join(chunk for _, chunk in found) == content


@pytest.mark.parametrize("read", [text_chunks, raw_chunks])
def test_invalid_utf8_is_named(tmp_path: Path, read: object) -> None:
    assert callable(read)
    file = tmp_path / "t.txt"
    for content, at in ((b"fine \xff no", 5), (b"cut off \xc3", 8), (b"\x1f\x8b\x08", 1)):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"is not UTF-8 text: byte {at} cannot be decoded"):
            list(read(file))


def test_text_that_cannot_be_split_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHUNK_BYTES", 2**20)
    file = tmp_path / "t.txt"
    file.write_bytes(b"word " + b"x" * 2**21)
    with pytest.raises(InputError, match="1 MiB without a space or newline from byte 4 on"):
        list(text_chunks(file))
