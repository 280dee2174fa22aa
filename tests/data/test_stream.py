"""Sample streams: which samples a batch contains depends on positions alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batchlab.data.order import SampleOrder
from batchlab.data.samples import SampleDataset
from batchlab.data.stream import SampleStream
from batchlab.data.tokens import TokenDataset


def numbered(n: int) -> SampleDataset:
    return SampleDataset((np.arange(n), -np.arange(n)))


@settings(max_examples=40, deadline=None)
@given(samples=st.integers(1, 700), total=st.integers(1, 10_000), size=st.integers(1, 5000), seed=st.integers(0, 9))
def test_every_batch_size_sees_the_same_samples_in_the_same_order(
    samples: int, total: int, size: int, seed: int
) -> None:
    stream = SampleStream(numbered(samples), seed)
    seen = np.concatenate([stream.batch(start, min(start + size, total))[0] for start in range(0, total, size)])
    assert np.array_equal(seen, SampleOrder(samples, seed).indices(0, total))


def test_positions_may_be_asked_in_any_order() -> None:
    stream, fresh = SampleStream(numbered(10_000), 4), SampleStream(numbered(10_000), 4)
    for start, stop in ((9000, 9100), (0, 8), (4090, 4100), (8, 16), (0, 6000), (5, 6)):
        x, y = stream.batch(start, stop)
        assert np.array_equal(x, fresh.order.indices(start, stop))
        assert np.array_equal(x, -y)


def test_epochs_counts_passes() -> None:
    stream = SampleStream(numbered(400), 0)
    assert stream.epochs(100) == 0.25
    assert stream.epochs(1000) == 2.5


def test_indices_are_computed_in_blocks() -> None:
    """Steps of 4 samples query the order once per 4096 samples, not once per step."""
    stream = SampleStream(numbered(100_000), 0)
    asked = []
    original = stream.order.indices

    def counting(start: int, stop: int) -> np.ndarray:
        asked.append(start)
        return original(start, stop)

    stream.order.indices = counting  # type: ignore[method-assign]
    for step in range(2048):
        stream.batch(4 * step, 4 * step + 4)
    assert asked == [0, 4096]


def test_random_windows_come_from_positions_drawn_with_replacement() -> None:
    data = TokenDataset(np.arange(1001), 10, overlapping=True)
    stream = SampleStream(data, seed=5)
    drawn = stream.indices(0, 3000)
    assert len(set(drawn.tolist())) < 991  # of 991 positions some are drawn twice and some never
    assert np.array_equal(SampleStream(data, seed=5).batch(2000, 2016)[0][:, 0], drawn[2000:2016])
    assert stream.epochs(100) == 1.0  # 100 windows of 10 tokens are one epoch
