"""Sample order: a permutation with random access that never changes between versions."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.data.order import RandomPositions, SampleOrder


@settings(deadline=None)
@given(samples=st.integers(1, 3000), seed=st.integers(0, 2**64), epoch=st.integers(0, 5))
def test_every_epoch_is_a_permutation(samples: int, seed: int, epoch: int) -> None:
    indices = SampleOrder(samples, seed).indices(epoch * samples, (epoch + 1) * samples)
    assert indices.dtype == np.int64
    assert np.array_equal(np.sort(indices), np.arange(samples))


@pytest.mark.parametrize("samples", [2**16 - 1, 2**16, 2**16 + 1, 300 * 301])
def test_permutation_around_square_sizes(samples: int) -> None:
    assert np.array_equal(np.sort(SampleOrder(samples, 7).indices(0, samples)), np.arange(samples))


@settings(max_examples=60, deadline=None)
@given(
    samples=st.integers(1, 500),
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 2000), min_size=2, max_size=12).map(sorted),
)
def test_random_access_equals_reading_in_order(samples: int, seed: int, cuts: list[int]) -> None:
    whole = SampleOrder(samples, seed).indices(0, cuts[-1])
    order = SampleOrder(samples, seed)
    for start, stop in reversed(list(itertools.pairwise(cuts))):
        assert np.array_equal(order.indices(start, stop), whole[start:stop])


def test_huge_datasets_need_no_table() -> None:
    order = SampleOrder(2**62, 1)
    indices = order.indices(2**61, 2**61 + 1000)
    assert len(set(indices.tolist())) == 1000
    assert indices.min() >= 0
    assert indices.max() > 2**60


def test_seeds_and_epochs_differ() -> None:
    order = SampleOrder(1000, 0)
    first, second = order.indices(0, 1000), order.indices(1000, 2000)
    other = SampleOrder(1000, 1).indices(0, 1000)
    for one, two in ((first, second), (first, other), (second, other)):
        # Two random orders agree at about one position in a thousand; 10 has probability under 1e-6.
        assert int(np.sum(one == two)) < 10


def test_every_sample_is_equally_likely_at_every_position() -> None:
    """Chi-square of the first and a middle position over 2,000 seeds and 10 samples; p-value above 1e-6."""
    for position in (0, 4):
        counts = Counter(int(SampleOrder(10, seed).indices(position, position + 1)[0]) for seed in range(2000))
        chi_square = sum((counts[index] - 200) ** 2 / 200 for index in range(10))
        assert chi_square < 47.0  # 9 degrees of freedom


def test_all_orders_of_few_samples_occur_about_equally() -> None:
    counts = Counter(tuple(SampleOrder(4, seed).indices(0, 4).tolist()) for seed in range(2400))
    assert len(counts) == math.factorial(4)
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 72.0  # 23 degrees of freedom, 5e-7


def test_neighbours_in_the_stream_are_not_neighbours_in_the_data() -> None:
    indices = SampleOrder(100_000, 3).indices(0, 100_000).astype(float)
    assert abs(np.corrcoef(indices[:-1], indices[1:])[0, 1]) < 0.02  # standard deviation 0.003
    assert abs(np.corrcoef(np.arange(100_000), indices)[0, 1]) < 0.02


def test_the_order_never_changes_between_versions() -> None:
    """Known values: a changed order would silently unpair new runs from old ones, so it needs a new version name."""
    assert SampleOrder(10, 0).indices(0, 20).tolist() == KNOWN_TEN
    assert SampleOrder(1_000_003, 42).indices(1_000_000, 1_000_008).tolist() == KNOWN_MILLION


KNOWN_TEN = [8, 6, 7, 1, 5, 2, 9, 4, 0, 3, 4, 8, 0, 6, 7, 1, 2, 3, 5, 9]
KNOWN_MILLION = [769013, 60263, 325263, 20998, 965802, 760043, 19268, 337243]


@pytest.mark.parametrize("samples", [0, -1, 2**62 + 1])
def test_impossible_sizes_are_rejected(samples: int) -> None:
    with pytest.raises(ValueError, match="must be within 1 to 2"):
        SampleOrder(samples, 0)


def test_negative_positions_are_rejected() -> None:
    with pytest.raises(ValueError, match="0 ≤ start ≤ stop"):
        SampleOrder(5, 0).indices(-1, 3)
    assert SampleOrder(5, 0).indices(3, 3).tolist() == []


def test_random_positions_are_a_function_of_seed_and_position() -> None:
    one, other = RandomPositions(1000, seed=3), RandomPositions(1000, seed=4)
    whole = one.indices(0, 5000)
    assert np.array_equal(whole[1234:1300], one.indices(1234, 1300))
    assert whole.min() == 0
    assert whole.max() == 999
    assert np.mean(whole == other.indices(0, 5000)) < 0.01
    with pytest.raises(ValueError, match="must be within 1 to 2"):
        RandomPositions(0, seed=0)
    with pytest.raises(ValueError, match="0 ≤ start ≤ stop, got"):
        one.indices(-1, 2)


def test_random_positions_are_uniform_and_independent() -> None:
    """Chi-squared of positions, and of pairs of neighbours, within six standard deviations of its expectation."""
    cells, n = 64, 200_000
    for seed in range(5):
        drawn = RandomPositions(cells, seed).indices(0, n)
        pairs = drawn[:-1:2] * cells + drawn[1::2]
        for found, kinds in ((drawn, cells), (pairs, cells * cells)):
            expected = len(found) / kinds
            chi2 = float(((np.bincount(found, minlength=kinds) - expected) ** 2 / expected).sum())
            assert abs(chi2 - (kinds - 1)) < 6 * (2 * (kinds - 1)) ** 0.5
