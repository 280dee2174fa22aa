"""Numbers as people read them."""

from __future__ import annotations

import pytest

from batchlab.core.format import format_bytes, format_count, format_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (8192, "8,192"),
        (99_999, "99,999"),
        (512_000, "512k"),
        (51_200_000, "51.2M"),
        (1.3e9, "1.3B"),
        (2.1e12, "2.1T"),
    ],
)
def test_counts_for_people(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(("size", "text"), [(5.6569, "5.66"), (41.23, "41.2"), (100.4, "100"), (2**21, "2.1M")])
def test_batch_sizes_that_need_not_be_whole(size: float, text: str) -> None:
    assert format_size(size) == text


def test_bytes_for_people() -> None:
    assert format_bytes(2**30) == "1.00 GiB"
    assert format_bytes(0.1 * 2**30) == "0.10 GiB"
    assert format_bytes(50 * 2**20) == "50.0 MiB"
