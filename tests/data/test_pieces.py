"""Pieces of a text: together the text, cut where words end anyway, from any of their ends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.data import pieces as module
from batchlab.data.bpe import train_bpe
from batchlab.data.pieces import BLOCK_BYTES, blocks, pieces

ALPHABET = st.sampled_from([*list("ab1.'s \n\t\r"), "\xa0", "\u2003", "\x85", "\x1c", "é", "中", "😀", "<|endoftext|>"])
TEXTS = st.lists(ALPHABET, max_size=200).map("".join)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(text=TEXTS, piece_bytes=st.integers(4, 40))
@SHARED
def test_encoded_in_pieces_is_encoded_whole(tmp_path: Path, text: str, piece_bytes: int) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    bpe = train_bpe(["aa bb ab\n\n  ab 11 's"], 270)
    file = tmp_path / "t.txt"
    file.write_bytes(text.encode())
    found = list(pieces(file, piece_bytes=piece_bytes))
    assert "".join(piece for _, piece in found) == text
    assert bpe.encode([piece for _, piece in found]).tolist() == bpe.encode([text]).tolist()
    for end, _ in found[:3]:
        assert text.encode()[:end].decode() + "".join(p for _, p in pieces(file, end)) == text


@given(text=TEXTS)
@SHARED
def test_blocks_are_the_bytes(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes(text.encode())
    assert b"".join(block for _, block in blocks(file)) == text.encode()


def test_blocks_end_at_characters_and_can_be_gone_on_from(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    content = ("a" + "é" * BLOCK_BYTES).encode()  # the first block's end falls into a character
    file.write_bytes(content)
    found = list(blocks(file))
    assert found[0][0] == BLOCK_BYTES - 1
    assert found[-1][0] == len(content)
    assert list(blocks(file, found[0][0])) == [(end, block) for end, block in blocks(file, BLOCK_BYTES - 1)]
    assert b"".join(block for _, block in found) == content


@pytest.mark.parametrize("read", [pieces, blocks])
def test_what_is_not_utf8_is_named(tmp_path: Path, read: object) -> None:
    assert callable(read)
    file = tmp_path / "t.txt"
    for content, at in ((b"fine \xff no", 5), (b"cut off \xc3", 8), (b"\x1f\x8b\x08", 1)):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"is not UTF-8 text: byte {at} cannot be decoded"):
            list(read(file))


def test_text_without_a_place_to_cut_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 2**20)
    file = tmp_path / "t.txt"
    file.write_bytes(b"word " + b"x" * 2**21)
    with pytest.raises(InputError, match="1 MiB without a space or a new line from byte 4 on"):
        list(pieces(file))
