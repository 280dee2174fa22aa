"""A model of the CUDA caching allocator: the bytes that torch would reserve on a GPU for a sequence of allocations.

The rules were derived from the public source (c10/cuda/CUDACachingAllocator.cpp: constants, `get_free_block`,
`should_split`, `release_cached_blocks`). Requests are rounded up to 512 bytes. Requests up to 1 MiB use 2 MiB segments,
requests up to 10 MiB use 20 MiB segments, and larger ones get their own segment, rounded up to 2 MiB. The smallest free
block that is large enough is used, split if enough remains, and merged with free neighbours when it is freed. Segments
are returned to the driver only if a new segment does not fit.

Assumptions: one stream, PYTORCH_ALLOC_CONF not set (with expandable segments nothing is predicted), and segments at
increasing addresses in the order of their creation. Equal to torch's allocator on the stand-in for CUDA (tests/cuda);
never compared on a real GPU.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MIB = 2**20
MIN_BLOCK = 512
SMALL_REQUEST = MIB
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
SEGMENT_MULTIPLE = 2 * MIB

CONFIGURATION = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that change the allocator's rules; the second is the older name."""

CUBLAS_WORKSPACE = (2 * 4096 + 8 * 16) * 1024
"""What a process holds after its first matrix product, which torch takes from this allocator for cuBLAS: 2 × 4 MiB and
8 × 16 KiB by default (aten/src/ATen/cuda/CublasHandlePool.cpp). On Hopper it is 32 MiB, a segment of its own."""


def expandable_segments() -> bool:
    """Whether this process's allocator lets segments grow. What it reserves then follows other rules."""
    configured = (os.environ.get(name, "") for name in CONFIGURATION)
    return any("expandable_segments:true" in text.lower().replace(" ", "") for text in configured)


@dataclass(slots=True, eq=False)
class Block:
    """A contiguous part of a segment, in use or free, linked to its neighbours in the same segment."""

    address: int
    size: int
    small: bool
    free: bool = False
    before: Block | None = None
    after: Block | None = None


@dataclass(slots=True)
class _Pool:
    """Free blocks, sorted by size, then address."""

    order: list[tuple[int, int]] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        insort(self.order, (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self.order[bisect_left(self.order, (block.size, block.address))]
        del self.blocks[block.address]

    def best_fit(self, size: int) -> Block | None:
        index = bisect_left(self.order, (size, 0))
        return self.blocks[self.order[index][1]] if index < len(self.order) else None


class CachingAllocator:
    """Allocates blocks from segments. At most `capacity` bytes can be reserved; None means unlimited."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self._pools = {True: _Pool(), False: _Pool()}
        self._next_address = 0

    def allocate(self, size: int) -> Block | None:
        """A block of at least `size` bytes, or None if it does not fit even after all free segments are released."""
        rounded = max(MIN_BLOCK, _round_up(size, MIN_BLOCK))
        small = rounded <= SMALL_REQUEST
        block = self._pools[small].best_fit(rounded)
        if block is not None:
            self._pools[small].remove(block)
        else:
            block = self._segment(rounded, small)
            if block is None:
                return None
        self._split(block, rounded)
        block.free = False
        self.allocated_bytes += block.size
        return block

    def free(self, block: Block) -> None:
        """Return a block to its pool, merged with free neighbours."""
        self.allocated_bytes -= block.size
        pool = self._pools[block.small]
        block.free = True
        if block.before is not None and block.before.free:
            pool.remove(block.before)
            block = _join(block.before, block)
        if block.after is not None and block.after.free:
            pool.remove(block.after)
            block = _join(block, block.after)
        pool.add(block)

    def _segment(self, rounded: int, small: bool) -> Block | None:
        size = segment_bytes(rounded)
        if self.capacity is not None and self.reserved_bytes + size > self.capacity:
            self._release_free_segments()
            if self.reserved_bytes + size > self.capacity:
                return None
        self.reserved_bytes += size
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        block = Block(self._next_address, size, small)
        self._next_address += size
        return block

    def _split(self, block: Block, size: int) -> None:
        remaining = block.size - size
        if remaining < MIN_BLOCK or (not block.small and remaining <= SMALL_REQUEST):
            return
        rest = Block(block.address + size, remaining, block.small, free=True, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._pools[block.small].add(rest)

    def _release_free_segments(self) -> None:
        for pool in self._pools.values():
            for block in [*pool.blocks.values()]:
                if block.before is None and block.after is None:
                    pool.remove(block)
                    self.reserved_bytes -= block.size


def segment_bytes(rounded: int) -> int:
    """Size of the new segment for a request that fits into no free block."""
    if rounded <= SMALL_REQUEST:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if rounded < OWN_SEGMENT else _round_up(rounded, SEGMENT_MULTIPLE)


def peak_reserved_bytes(
    changes: Iterable[tuple[int, int]], capacity: int | None = None, held: Sequence[int] = ()
) -> int | None:
    """Peak reserved bytes over a sequence of `(storage, bytes)` changes, or None if they do not fit.

    Negative bytes free a storage. Storages are numbered; each is allocated once and freed at most once. Blocks of the
    `held` sizes are there before. Their segments count neither in the peak nor against the capacity, and what they
    leave free is used.
    """
    allocator = CachingAllocator()
    for size in held:
        allocator.allocate(size)
    before = allocator.reserved_bytes
    allocator.capacity = None if capacity is None else before + capacity
    blocks: dict[int, Block] = {}
    for storage, size in changes:
        if size > 0:
            block = allocator.allocate(size)
            if block is None:
                return None
            blocks[storage] = block
        elif storage in blocks:
            allocator.free(blocks.pop(storage))
    return max(before, allocator.peak_reserved_bytes) - before


def _join(first: Block, second: Block) -> Block:
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    return first


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
