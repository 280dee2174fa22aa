"""The model of the caching allocator: sizes computed by hand, and invariants of random sequences."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.torch_.cuda_allocator import CUBLAS_WORKSPACE, MIB, CachingAllocator, peak_reserved_bytes, segment_bytes


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([512] * 4096, 2 * MIB),
        ([512] * 4097, 4 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB + 1], 20 * MIB),
        ([MIB, MIB + 1], 22 * MIB),
        ([5 * MIB] * 4, 20 * MIB),
        ([5 * MIB] * 5, 40 * MIB),
        ([10 * MIB], 10 * MIB),
        ([10 * MIB + 1], 12 * MIB),
        # less than 1 MiB of the first segment would remain, so the second request gets all of it
        ([10 * MIB - 512, 10 * MIB - 512, MIB + 1], 40 * MIB),
    ],
)
def test_reserved_bytes_of_requests_that_stay(sizes: list[int], reserved: int) -> None:
    assert peak_reserved_bytes(enumerate(sizes)) == reserved


def test_the_smallest_sufficient_free_block_is_taken() -> None:
    allocator = CachingAllocator()
    large, _, middle, _ = (allocator.allocate(size * MIB) for size in (40, 12, 30, 12))
    assert large is not None
    assert middle is not None
    allocator.free(large)
    allocator.free(middle)
    again = allocator.allocate(29 * MIB)
    assert again is not None
    assert again.address == middle.address
    assert again.size == 30 * MIB  # exactly 1 MiB would remain, which is not split off


def test_free_neighbours_become_one_block() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(4 * MIB) for _ in range(5)]
    for index in (0, 2, 1, 4, 3):
        block = blocks[index]
        assert block is not None
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    whole = allocator.allocate(9 * MIB)
    assert whole is not None
    assert whole.address == 0
    assert allocator.reserved_bytes == 20 * MIB


def test_cached_segments_are_given_back_when_a_new_one_does_not_fit() -> None:
    changes = [(0, 30 * MIB), (0, -30 * MIB), (1, 40 * MIB)]
    assert peak_reserved_bytes(changes) == 70 * MIB
    assert peak_reserved_bytes(changes, capacity=45 * MIB) == 40 * MIB
    assert peak_reserved_bytes(changes, capacity=39 * MIB) is None


def test_rounding_of_segments() -> None:
    assert [segment_bytes(size) for size in (512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 11 * MIB)] == [
        2 * MIB,
        2 * MIB,
        20 * MIB,
        20 * MIB,
        10 * MIB,
        12 * MIB,
    ]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 30 * MIB)), max_size=60))
def test_whatever_comes_and_goes(orders: list[tuple[int, int]]) -> None:
    """Each order frees the storage in its slot, if any, and allocates one of another size."""
    allocator = CachingAllocator()
    places: dict[int, Any] = {}
    for place, size in orders:
        if place in places:
            allocator.free(places.pop(place))
        else:
            places[place] = allocator.allocate(size)
        held = sorted(((block.address, block.size) for block in places.values()), key=lambda b: b[0])
        assert all(start + length <= following for (start, length), (following, _) in itertools.pairwise(held))
        assert sum(length for _, length in held) == allocator.allocated_bytes <= allocator.reserved_bytes
        assert allocator.reserved_bytes % (2 * MIB) == 0
        assert allocator.reserved_bytes <= allocator.peak_reserved_bytes
    for block in places.values():
        allocator.free(block)
    assert allocator.allocated_bytes == 0
    merged = allocator._pools[True].blocks | allocator._pools[False].blocks
    assert sum(block.size for block in merged.values()) == allocator.reserved_bytes
    assert all(block.before is None and block.after is None for block in merged.values())


@given(st.lists(st.integers(1, 30 * MIB), min_size=1, max_size=30), st.integers(1, 400 * MIB))
def test_a_capacity_is_never_passed(sizes: list[int], capacity: int) -> None:
    changes = [(index, size) for index, size in enumerate(sizes)]
    reserved = peak_reserved_bytes(changes, capacity)
    unlimited = peak_reserved_bytes(changes)
    assert unlimited is not None
    assert reserved is None or reserved <= capacity
    assert (unlimited <= capacity) <= (reserved == unlimited)


def test_what_a_held_segment_leaves_free_is_used_before_a_new_one() -> None:
    changes = [(0, 5 * MIB), (1, 5 * MIB)]
    assert peak_reserved_bytes(changes) == 20 * MIB
    assert peak_reserved_bytes(changes, None, (CUBLAS_WORKSPACE,)) == 0  # 11.9 MiB were left in its segment
    assert peak_reserved_bytes([*changes, (2, 5 * MIB)], 20 * MIB, (CUBLAS_WORKSPACE,)) == 20 * MIB
    assert peak_reserved_bytes([*changes, (2, 5 * MIB)], 18 * MIB, (CUBLAS_WORKSPACE,)) is None
