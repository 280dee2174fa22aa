"""What was made from data is read in full, wherever it lies, and nothing of another text beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchlab.core.experiment import DataConfig
from batchlab.data import digests
from batchlab.data.digests import file_digest, no_progress
from batchlab.data.source import encode_beside, open_text_pair
from batchlab.data.token_file import open_token_file
from batchlab.data.verify import damaged_made

TEXT = "the cat sat on the mat, and the dog sat on the cat. " * 2000


def flip(path: Path, place: int) -> None:
    """Change a bit between the samples, without a new modification time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_token_files_and_tokenizers_beside_a_text(tmp_path: Path) -> None:
    one, other, cache = tmp_path / "one.txt", tmp_path / "other.txt", tmp_path / "study" / "cache"
    one.write_text(TEXT)
    other.write_text(TEXT[::-1])
    for text in (one, other):
        encode_beside(DataConfig(path=str(text), tokenizer="bpe", vocabulary=300), cache, no_progress)
    texts = {one: file_digest(one, cache).sha256}
    beside = tmp_path / ".batchlab"
    (mine,) = beside.glob("one-*.bin")
    (theirs,) = beside.glob("other-*.bin")
    assert damaged_made(cache, texts) == (2, [])
    for path in (mine, theirs):
        path.write_bytes(path.read_bytes()[:-2] + b"\xff\xff")
    assert damaged_made(cache, texts) == (2, [mine])
    for tokenizer in beside.glob("bpe-*.json"):
        tokenizer.write_text("{}")
    count, damaged = damaged_made(cache, texts)
    assert (count, len(damaged)) == (2, 2)


def test_between_the_samples_of_a_token_file_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_BLOCK", 16)
    folder, cache = tmp_path / "texts", tmp_path / "study" / "cache"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.txt").write_text(TEXT)
    open_text_pair(DataConfig(path=str(folder), tokenizer="bpe", vocabulary=257), cache)
    (made,) = (cache / ".batchlab").glob("*.bin")
    assert made.stat().st_size > 10_000
    assert damaged_made(cache, {}) == (3, [])
    flip(made, 40)
    open_token_file(made)  # no sample is there
    assert damaged_made(cache, {}) == (3, [made])
