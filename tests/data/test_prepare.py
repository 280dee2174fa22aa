"""From data settings to cached token files: made once, reused, and rebuilt when damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from batchlab.core.errors import InputError
from batchlab.core.experiment import DataConfig
from batchlab.data import prepare as module
from batchlab.data.bpe import END_OF_TEXT, read_tokenizer
from batchlab.data.prepare import find_tokenizer, prepare, prepare_to, text_cache_dir
from batchlab.data.source import TextPair, encode_beside, open_dataset, open_text_pair
from batchlab.data.token_file import open_token_file

TEXT = "".join(f"Sentence {n} says that {n * n} is the square of {n}.\n{END_OF_TEXT}\n" for n in range(400))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "data" / "corpus.txt"
    file.parent.mkdir()
    file.write_text(TEXT, encoding="utf-8")
    return file


def pair(tmp_path: Path, **values: object) -> TextPair:
    return open_text_pair(DataConfig.model_validate(values), tmp_path / "cache")


def bpe_pair(tmp_path: Path, text: Path, **values: object) -> TextPair:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    return pair(tmp_path, path=str(text), tokenizer="bpe", vocabulary=300, **values)


def test_encoded_text_is_cached_next_to_it(tmp_path: Path, text: Path) -> None:
    found = bpe_pair(tmp_path, text)
    assert found.vocabulary == 300
    assert found.train.ids.dtype == np.uint16
    kept = sorted(path.suffix for path in (text.parent / ".batchlab").iterdir() if path.name != ".lock")
    assert kept == [".bin", ".json", ".json", ".sha256", ".sha256"]  # ids, description, BPE, digests of text and BPE
    (tokenizer,) = (text.parent / ".batchlab").glob("bpe-300-*.json")
    ids = np.concatenate([found.train.ids, found.valid.ids])
    assert read_tokenizer(tokenizer).decode(ids.tolist()) == TEXT
    assert (ids == 0).sum() == 400  # every <|endoftext|> is one id
    assert "BPE 300" in found.description
    assert not (tmp_path / "cache").exists()


def test_a_token_file_is_reused_and_made_again_for_another_text(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bpe_pair(tmp_path, text)
    with monkeypatch.context() as without:
        without.setattr(module, "write_token_file", None)
        without.setattr(module, "train_bpe", None)
        again = bpe_pair(tmp_path, text)
    assert (again.train.digest, again.valid.digest) == (first.train.digest, first.valid.digest)
    text.write_text(TEXT * 2, encoding="utf-8")
    assert len(bpe_pair(tmp_path, text).train) > 1.5 * len(first.train)


def test_held_out_text_is_encoded_by_the_tokenizer_of_the_training_text(tmp_path: Path, text: Path) -> None:
    held_out = tmp_path / "held.txt"
    held_out.write_text(TEXT[:500], encoding="utf-8")
    found = bpe_pair(tmp_path, text, valid_path=str(held_out))
    assert found.valid.ids.tolist() == found.train.ids[: len(found.valid)].tolist()


@pytest.mark.parametrize("harm", ["shorter", "changed", "description"])
def test_a_damaged_token_file_is_rebuilt_with_a_notice(tmp_path: Path, text: Path, harm: str) -> None:
    first = bpe_pair(tmp_path, text)
    (path,) = (text.parent / ".batchlab").glob("corpus-*.bin")
    content = path.read_bytes()
    if harm == "description":
        path.with_name(path.name + ".json").write_text('{"tokens": 1}')
    else:
        path.write_bytes(content[:-1] if harm == "shorter" else content[:-1] + bytes([content[-1] ^ 1]))
    again = bpe_pair(tmp_path, text)
    assert "was damaged and rebuilt" in again.description
    assert again.train.digest == first.train.digest
    assert path.read_bytes() == content
    assert "damaged" not in bpe_pair(tmp_path, text).description


def test_a_damaged_tokenizer_is_retrained_with_a_notice(tmp_path: Path, text: Path) -> None:
    first = bpe_pair(tmp_path, text)
    (path,) = (text.parent / ".batchlab").glob("bpe-*.json")
    path.write_text(path.read_text()[:200])
    again = bpe_pair(tmp_path, text)
    assert f"{path.name} was damaged and rebuilt" in again.description
    assert again.train.digest == first.train.digest


def test_a_vocabulary_that_the_text_cannot_fill_gives_a_notice(tmp_path: Path, text: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    for _ in range(2):
        found = pair(tmp_path, path=str(text), tokenizer="bpe", vocabulary=10_000)
        assert found.vocabulary == 10_000
        assert " of 10,000 ids" in found.description


def test_a_read_only_folder_has_its_files_in_the_cache(tmp_path: Path, text: Path) -> None:
    assert text_cache_dir(text, tmp_path / "cache") == text.parent / ".batchlab"
    text.parent.chmod(0o555)
    try:
        assert text_cache_dir(text, tmp_path / "cache") == tmp_path / "cache"
        bpe_pair(tmp_path, text)
    finally:
        text.parent.chmod(0o755)
    assert not (text.parent / ".batchlab").exists()
    assert len(list((tmp_path / "cache").glob("corpus-*.bin"))) == 1


def test_bytes_to_a_token_file(tmp_path: Path, text: Path) -> None:
    tokenizer = find_tokenizer("bytes", text, tmp_path, vocabulary=None, special_tokens=())
    seen: list[tuple[str, int, int]] = []
    made = prepare(text, tmp_path / "c.bin", tokenizer, tmp_path, progress=lambda *step: seen.append(step))
    assert (tmp_path / "c.bin").read_bytes() == TEXT.encode()
    assert (made.description.vocabulary, made.description.dtype) == (256, "uint8")
    assert seen[-1] == ("encoding", len(TEXT.encode()), len(TEXT.encode()))
    found = pair(tmp_path, path=str(tmp_path / "c.bin"))
    assert found.vocabulary == 256
    assert "(corpus.txt, bytes, " in found.description


def test_a_prepared_file_is_opened_by_its_description(tmp_path: Path, text: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    tokenizer = find_tokenizer("bpe", text, tmp_path, vocabulary=70_000, special_tokens=(END_OF_TEXT,))
    path = tmp_path / "c.bin"
    prepare(text, path, tokenizer, tmp_path)
    found = pair(tmp_path, path=str(path), bin_dtype="uint8")  # the description takes precedence
    assert found.train.ids.dtype == np.uint32
    assert found.vocabulary == 70_000
    span = open_token_file(path)
    for data in (span, str(path)):
        dataset = open_dataset(data, unit="tokens", sequence_length=8, what="training data")  # type: ignore[arg-type]
        assert dataset.digest == span.digest


def test_a_name_that_is_taken_is_refused_before_a_tokenizer_is_trained(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "made.bin", tmp_path / "other.txt"
    other.write_text("another text\n" * 50)
    prepare_to(text, path, "bytes")
    assert prepare_to(text, path, "bytes").continued_from == text.stat().st_size, "the same again"
    with pytest.raises(InputError, match="other content"):
        prepare_to(text, path, "bpe", vocabulary=300)
    monkeypatch.setattr(module, "train_bpe", lambda *_: pytest.fail("trained a tokenizer"))
    with pytest.raises(InputError, match="other content"):
        prepare_to(other, path, "bpe", vocabulary=300)
    path.write_bytes(b"not a token file")
    path.with_name("made.bin.json").unlink()
    with pytest.raises(InputError, match="other content"):
        prepare_to(text, path, "bpe", vocabulary=300)


def test_a_vocabulary_that_does_not_match_is_refused(tmp_path: Path, text: Path) -> None:
    tokenizer = find_tokenizer("bytes", text, tmp_path, vocabulary=None, special_tokens=())
    prepare(text, tmp_path / "c.bin", tokenizer, tmp_path)
    with pytest.raises(InputError, match=r"needs a vocabulary of 256, but data\.vocabulary is 100"):
        pair(tmp_path, path=str(tmp_path / "c.bin"), vocabulary=100)
    assert pair(tmp_path, path=str(tmp_path / "c.bin"), vocabulary=300).vocabulary == 300
    with pytest.raises(InputError, match=r"tokenizer bytes has 256 ids, but data\.vocabulary is 100"):
        find_tokenizer("bytes", text, tmp_path, vocabulary=100, special_tokens=())


def test_two_files_of_two_tokenizers_are_refused(tmp_path: Path, text: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    for name, given in (("a.bin", "bytes"), ("b.bin", "bpe")):
        tokenizer = find_tokenizer(given, text, tmp_path, vocabulary=300, special_tokens=())
        prepare(text, tmp_path / name, tokenizer, tmp_path)
    with pytest.raises(InputError, match=r"a\.bin was encoded with bytes and b\.bin with BPE 300"):
        pair(tmp_path, path=str(tmp_path / "a.bin"), valid_path=str(tmp_path / "b.bin"))


def test_invalid_arguments_are_rejected(tmp_path: Path, text: Path) -> None:
    with pytest.raises(InputError, match="There is no tokenizer 'gtp2'; use bytes, bpe, a folder"):
        pair(tmp_path, path=str(text), tokenizer="gtp2")
    empty = tmp_path / "empty.txt"
    empty.touch()
    with pytest.raises(InputError, match=r"empty\.txt is empty"):
        prepare(
            empty,
            tmp_path / "c.bin",
            find_tokenizer("bytes", text, tmp_path, vocabulary=None, special_tokens=()),
            tmp_path,
        )


def test_a_text_is_encoded_in_advance_where_a_worker_finds_it(tmp_path: Path, text: Path) -> None:
    pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
    shown: list[str] = []
    for values in ({}, {"path": str(text)}, {"path": "hf:some/name", "tokenizer": "bpe"}, {"tokenizer": "bpe"}):
        encode_beside(DataConfig.model_validate(values), tmp_path / "cache", lambda *step: shown.append(step[0]))
    assert shown == []
    config = DataConfig(path=str(text), tokenizer="bpe", vocabulary=300)
    encode_beside(config, tmp_path / "cache", lambda *step: shown.append(step[0]))
    assert list(dict.fromkeys(shown)) == ["reading", "training the BPE", "encoding"]
    assert len(list((text.parent / ".batchlab").glob("corpus-*.bin"))) == 1
    assert not (tmp_path / "cache").exists()
