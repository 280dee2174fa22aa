"""BPE: exact round trips, GPT-2's published ids, and a comparison with a short reference implementation."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.data.bpe import BPE, END_OF_TEXT, read_gpt2, read_tokenizer, train_bpe

pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")

FIXTURES = Path(__file__).parents[3] / "shared" / "data" / "cs336_fixtures"
TEXT = "the cat sat on the mat, the other cat ate the oats.\n" * 20


@pytest.fixture(scope="module")
def small() -> BPE:
    return train_bpe([TEXT], 270)


@pytest.fixture(scope="module")
def gpt2() -> BPE:
    if not FIXTURES.is_dir():
        pytest.skip("GPT-2's files (shared/data/cs336_fixtures) are not available")
    return read_gpt2(FIXTURES)


@given(st.text())
def test_encoding_round_trips(small: BPE, text: str) -> None:
    assert small.decode(small.encode([text])) == text


def test_training_is_deterministic_and_fills_the_vocabulary(small: BPE) -> None:
    assert small.vocabulary == 270
    assert train_bpe([TEXT], 270).digest == small.digest
    assert train_bpe([TEXT], 100_000).vocabulary < 300  # nothing left to merge
    assert len(small.encode([TEXT])) < len(TEXT) / 2.5


def test_special_tokens_have_one_id_and_contribute_no_merges() -> None:
    marked = train_bpe([f"{TEXT}{END_OF_TEXT}" * 5], 300, (END_OF_TEXT, "<|pad|>"))
    assert marked.encode([f"a{END_OF_TEXT}<|pad|>"]).tolist() == [*marked.encode(["a"]).tolist(), 0, 1]
    assert marked.encode(["endoftext"]).size > 4


def test_gpt2_ids_are_the_published_ones(gpt2: BPE) -> None:
    assert gpt2.vocabulary == 50_257
    assert gpt2.encode(["Hello world"]).tolist() == [15496, 995]
    assert gpt2.encode([END_OF_TEXT]).tolist() == [50_256]


def test_gpt2_against_a_reference_implementation(gpt2: BPE) -> None:
    """The algorithm of the paper on the same files, with Python's character classes for letters and digits."""
    vocab = json.loads((FIXTURES / "gpt2_vocab.json").read_text(encoding="utf-8"))
    lines = (FIXTURES / "gpt2_merges.txt").read_text(encoding="utf-8").splitlines()
    ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(lines)}
    text = (FIXTURES / "tinystories_sample.txt").read_text(encoding="utf-8")
    shown = [b for b in range(256) if chr(b).isprintable() and b not in (0x20, 0xAD)]
    letters = {b: chr(b) for b in shown} | {
        b: chr(256 + n) for n, b in enumerate(b for b in range(256) if b not in shown)
    }

    def word_ids(word: str) -> list[int]:
        parts = [letters[byte] for byte in word.encode()]
        while pairs := [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]:
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [vocab[part] for part in parts]

    pattern = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
    expected: list[int] = []
    for number, part in enumerate(text.split(END_OF_TEXT)):
        expected += [vocab[END_OF_TEXT]] * (number > 0)
        for word in pattern.findall(part):
            expected += word_ids(word)
    assert gpt2.encode([text]).tolist() == expected
    assert gpt2.decode(expected) == text


def test_a_tokenizer_round_trips_through_its_file(small: BPE, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(small.text, encoding="utf-8")
    assert read_tokenizer(tmp_path / "t.json").digest == small.digest


def test_invalid_arguments_are_rejected(small: BPE, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="need 257"):
        train_bpe([TEXT], 256)
    with pytest.raises(InputError, match="contain whitespace"):
        train_bpe([TEXT], 300, ("end of text",))
    with pytest.raises(InputError, match=r"has no vocab\.json"):
        read_gpt2(tmp_path)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("a b\n")
    with pytest.raises(InputError, match="do not form a BPE"):
        read_gpt2(tmp_path)
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(InputError, match="lacks 255 of the 256 bytes"):
        read_gpt2(tmp_path)
    (tmp_path / "t.json").write_text(small.text[:-20], encoding="utf-8")
    with pytest.raises(InputError, match=r"not a valid tokenizer\.json"):
        read_tokenizer(tmp_path / "t.json")
    described = json.loads(small.text)
    described["pre_tokenizer"] = {"type": "Whitespace"}
    (tmp_path / "t.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(InputError, match="is not a byte-level BPE"):
        read_tokenizer(tmp_path / "t.json")
    with pytest.raises(InputError, match="cannot be read"):
        read_tokenizer(tmp_path / "gone.json")
