"""Datasets of windows over token ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.core.errors import InputError
from batchlab.data.tokens import TokenDataset, largest_id
from batchlab.testing import check_dataset


@settings(deadline=None)
@given(length=st.integers(1, 9), extra=st.integers(0, 40), kind=st.sampled_from(["uint8", "uint16", "int32", "int64"]))
def test_windows_cover_the_tokens_without_overlap(length: int, extra: int, kind: str) -> None:
    tokens = (np.arange(length + 1 + extra) % 100).astype(kind)
    data = TokenDataset(tokens, length)
    assert len(data) == (len(tokens) - 1) // length
    x, y = data.gather(np.arange(len(data)))
    assert x.dtype == y.dtype == np.int64
    assert np.array_equal(x.ravel(), tokens[: x.size])
    assert np.array_equal(y.ravel(), tokens[1 : y.size + 1])
    check_dataset(data)


def test_memory_mapped_files_are_not_read_into_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(1000, dtype=np.uint16))
    data = TokenDataset(np.load(tmp_path / "ids.npy", mmap_mode="r"), 10)
    assert isinstance(data.tokens.base, np.memmap)
    assert type(data.tokens) is np.ndarray
    assert data.gather(np.array([98]))[1].tolist() == [list(range(981, 991))]
    check_dataset(data)


def test_strided_arrays_work() -> None:
    tokens = np.arange(200, dtype=np.int32)[::2]
    assert TokenDataset(tokens, 5).gather(np.array([1]))[0].tolist() == [[10, 12, 14, 16, 18]]


def test_digest_depends_on_content_type_and_length() -> None:
    tokens = np.arange(100, dtype=np.uint8)
    changed = tokens.copy()
    changed[57] = 0
    digests = [TokenDataset(t, 4).digest for t in (tokens, changed, tokens[:-1], tokens.astype(np.uint16))]
    assert len(set(digests)) == 4
    assert TokenDataset(tokens.copy(), 4).digest == digests[0]
    assert len(digests[0]) == 64


def test_vocabulary_is_the_largest_id_plus_one() -> None:
    tokens = np.array([3, 9, 2, 9], dtype=np.int16)
    assert TokenDataset(tokens, 1).vocabulary == 10
    assert largest_id(np.array([255, 0], dtype=np.uint8)) == 255


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (np.arange(8), "has 8 tokens, too few for one window of 8"),
        (np.array([], dtype=np.int64), "has 0 tokens"),
        (np.linspace(0, 1, 50), "float64 values; token ids must be integers"),
        (np.arange(50).reshape(5, 10), r"shape \(5, 10\)"),
        (np.array([3, -100] * 20), "token id -100"),
        (np.array([1, None] * 20), "Python objects"),
        (np.array([True] * 20), "bool values"),
    ],
)
def test_invalid_arrays_are_rejected(tokens: np.ndarray, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        TokenDataset(tokens, 8, "training data")
    assert str(caught.value).startswith("The training data ")


@pytest.mark.parametrize(("stride", "starts"), [(None, [0, 4, 8, 12]), (3, [0, 3, 6, 9, 12, 15]), (6, [0, 6, 12])])
def test_windows_start_every_stride(stride: int | None, starts: list[int]) -> None:
    data = TokenDataset(np.arange(20), 4, stride=stride)
    x, y = data.gather(np.arange(len(data)))
    assert x[:, 0].tolist() == starts
    assert y[-1].tolist() == [starts[-1] + 1 + i for i in range(4)]


def test_overlapping_windows_start_at_any_token() -> None:
    tokens = np.arange(20)
    data = TokenDataset(tokens, 4, overlapping=True)
    check_dataset(data)
    assert len(data) == 16
    x, y = data.gather(np.array([0, 7, 15]))
    assert x.tolist() == [[0, 1, 2, 3], [7, 8, 9, 10], [15, 16, 17, 18]]
    assert y[-1].tolist() == [16, 17, 18, 19]
    assert len(TokenDataset(tokens[:5], 4, overlapping=True)) == 1
    with pytest.raises(InputError, match="too few for one window of 4"):
        TokenDataset(tokens[:4], 4, overlapping=True)
