"""Worst-case batches of padded, concatenated and equal-size samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.data.largest import (
    MAX_COUNTED_SAMPLES,
    PROBED_SAMPLES,
    WorstStream,
    element_counts,
    largest_samples,
    worst_batch,
)
from batchlab.data.samples import SampleDataset
from batchlab.data.stream import SampleStream
from batchlab.data.tokens import TokenDataset


class Padded:
    """Sequences of the given lengths; a batch is padded to its longest."""

    digest = "padded"

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = np.array(lengths)
        self.gathered = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.gathered += 1
        shape = (len(indices), int(self.lengths[indices].max()))
        return np.zeros(shape, np.int64), np.zeros(shape, np.int64)


class Concatenated(Padded):
    """Concatenated graphs with the given numbers of nodes and two edges per node."""

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nodes = int(self.lengths[indices].sum())
        return np.zeros((nodes, 3)), np.zeros((2, 2 * nodes), np.int64)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.data())
@pytest.mark.parametrize("kind", [Padded, Concatenated])
def test_no_batch_has_more_elements_than_the_worst(kind, lengths, data):
    dataset = kind(lengths)
    count = data.draw(st.integers(1, len(lengths)))
    some = np.array(data.draw(st.permutations(range(len(lengths)))))[:count]
    worst, other = worst_batch(dataset, count), dataset.gather(some)
    assert all(w.size >= o.size for w, o in zip(worst, other, strict=True))


def test_largest_first_and_ties_in_order():
    tied, repeated = largest_samples(Padded([3, 9, 1, 9, 4]), 4), largest_samples(Padded([3, 9]), 5)
    assert tied is not None
    assert tied.tolist() == [1, 3, 4, 0]
    assert repeated is not None
    assert repeated.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    "dataset",
    [Padded([7] * 1000), TokenDataset(np.arange(100), 8, "data"), SampleDataset((np.zeros((5, 3)), np.zeros(5)))],
)
def test_equal_samples_keep_their_order(dataset):
    assert element_counts(dataset) is None
    assert largest_samples(dataset, 3) is None
    worst, plain = WorstStream(dataset, seed=3), SampleStream(dataset, seed=3)
    assert not worst.sizes_differ
    assert worst.indices(2, 5).tolist() == plain.indices(2, 5).tolist()
    assert [part.shape for part in worst_batch(dataset, 3)] == [part.shape for part in dataset.gather(np.arange(3))]


def test_every_batch_of_a_worst_stream_is_the_worst():
    stream = WorstStream(Padded([2, 8, 5]), seed=0)
    assert stream.sizes_differ
    assert [stream.indices(at, at + 2).tolist() for at in (0, 2, 7)] == [[1, 2]] * 3
    assert stream.batch(4, 8)[0].shape == (4, 8)


def test_large_datasets_are_subsampled():
    equal = Padded([5] * 10_000)
    assert element_counts(equal) is None
    assert equal.gathered == PROBED_SAMPLES
    lengths = np.tile(np.arange(1, 8), 20_000).tolist()
    many = Padded(lengths)
    examined = element_counts(many)
    assert examined is not None
    indices, counts = examined
    assert len(indices) == MAX_COUNTED_SAMPLES
    assert counts.max() == 2 * 7


def test_the_largest_by_content_have_the_least_padding() -> None:
    """All arrays have one shape; padding stands behind the content of some samples and before that of others."""
    rows = np.zeros((40, 12), np.int64)
    for sample in range(40):
        length = 1 + sample % 10
        rows[sample, :length] = np.arange(1, length + 1)
    rows[7] = rows[7, ::-1]
    dataset = SampleDataset((rows, np.zeros(40)))
    assert largest_samples(dataset, 3) is None
    longest = largest_samples(dataset, 4, by_content=True)
    assert longest is not None
    assert sorted(longest) == [9, 19, 29, 39]
    stream = WorstStream(dataset, seed=0, worst_until=8)
    assert set(stream.indices(0, 4)) == {9, 19, 29, 39}
    drawn = [tuple(stream.indices(at, at + 8)) for at in (8, 16, 24)]
    assert len(set(drawn)) == 3
    assert set(WorstStream(dataset, seed=0).indices(0, 4)) != {9, 19, 29, 39}
