"""Held-out data that also occurs in the training data is detected at any position."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.data import overlap
from batchlab.data.overlap import contained_share
from batchlab.data.samples import SampleDataset
from batchlab.data.tokens import TokenDataset

RANDOM = np.random.default_rng(0)


def tokens(n: int, kind: str = "uint8", top: int = 250) -> np.ndarray:
    return RANDOM.integers(0, top, n).astype(kind)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "int64"])
@pytest.mark.parametrize("offset", [0, 3, 1001])
def test_a_copied_passage_is_found_at_any_offset(kind: str, offset: int) -> None:
    valid, train = tokens(2000, kind), tokens(20_000, kind)
    assert contained_share(TokenDataset(valid, 16), TokenDataset(train, 16)) == 0.0
    train[offset : offset + 2000] = valid
    assert contained_share(TokenDataset(valid, 16), TokenDataset(train, 16)) == 1.0


def test_half_a_leak_is_about_half() -> None:
    valid = tokens(64 * 130)
    train = np.concatenate([tokens(5000), valid[: len(valid) // 2]])
    assert 0.4 < contained_share(TokenDataset(valid, 64), TokenDataset(train, 64)) < 0.6


def test_types_may_differ() -> None:
    valid = tokens(500, "int64")
    data = TokenDataset(valid, 16)
    assert contained_share(data, TokenDataset(valid.astype(np.uint8), 16)) == 1.0
    assert contained_share(TokenDataset(valid + 1000, 16), TokenDataset(valid.astype(np.uint8), 16)) == 0.0


def test_bytes_that_match_across_token_boundaries_do_not_count() -> None:
    valid = np.full(200, 0x0102, dtype="<u2")
    train = np.full(200, 0x0201, dtype="<u2")
    assert contained_share(TokenDataset(valid, 8), TokenDataset(train, 8)) == 0.0


def test_passages_across_blocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_BLOCK_BYTES", 256)
    valid, train = tokens(65), tokens(4000)
    for start in range(200, 300, 7):
        leaked = train.copy()
        leaked[start : start + 65] = valid
        assert contained_share(TokenDataset(valid, 64), TokenDataset(leaked, 64)) == 1.0


def test_common_words_are_no_leak() -> None:
    """Single short windows recur by chance in any text; passages of 64 tokens do not."""
    words = tokens(8)
    valid = np.concatenate([words, tokens(500)])
    train = np.concatenate([tokens(500), words, tokens(500)])
    assert contained_share(TokenDataset(valid, 4), TokenDataset(train, 4)) == 0.0


def test_samples_are_compared_by_their_inputs() -> None:
    x = RANDOM.normal(size=(300, 5))
    train = SampleDataset((x[:200], np.zeros(200)))
    assert contained_share(SampleDataset((x[200:], np.zeros(100))), train) == 0.0
    assert contained_share(SampleDataset((x[:50], np.ones(50))), train) == 1.0
    assert contained_share(SampleDataset((x[190:210], np.ones(20))), train) == 0.5


def test_large_training_data_is_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_SEARCHED_SAMPLES", 50)
    x = RANDOM.normal(size=(500, 2))
    data = SampleDataset((x, np.zeros(500)))
    assert 0.02 < contained_share(data, data, limit=500) < 0.2
    monkeypatch.setattr(overlap, "_SEARCHED_BYTES", 1000)
    monkeypatch.setattr(overlap, "_BLOCK_BYTES", 500)
    text = TokenDataset(tokens(5000), 10)
    assert 0.05 < contained_share(text, text) < 0.6
