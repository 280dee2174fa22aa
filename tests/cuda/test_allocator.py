"""The model of the caching allocator against torch's own, request by request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from tests.cuda.card import CONTEXT, MEMORY, Card

from batchlab.torch_.cuda_allocator import CUBLAS_WORKSPACE, MIB, Block, CachingAllocator, segment_bytes

REQUESTS = 1200
EDGES = [1, 512, MIB, 2 * MIB, 10 * MIB, 12 * MIB, 20 * MIB, 32 * MIB]


def sizes(draw: random.Random) -> int:
    """Bytes from one size class: near an edge of the allocator's rules, or of any magnitude up to 256 MiB."""
    if draw.random() < 0.3:
        return max(1, draw.choice(EDGES) + draw.randint(-600, 600))
    return round(2 ** draw.uniform(0, 28))


@dataclass
class Both:
    """The same requests to torch's allocator and to the model of it."""

    model: CachingAllocator
    held: list[tuple[torch.Tensor, Block]] = field(default_factory=list)
    failed: int = 0

    def allocate(self, size: int) -> None:
        block = self.model.allocate(size)
        try:
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            assert block is None, f"only torch ran out of memory at {size} bytes"
            self.failed += 1
        else:
            assert block is not None, f"only the model ran out of memory at {size} bytes"
            self.held.append((tensor, block))

    def free(self, index: int) -> None:
        tensor, block = self.held.pop(index)
        del tensor
        self.model.free(block)

    def compare(self) -> None:
        assert torch.cuda.memory_allocated() == self.model.allocated_bytes
        assert torch.cuda.memory_reserved() == self.model.reserved_bytes


def replay(both: Both, seed: int, live: int) -> None:
    """REQUESTS allocations of which about `live` are alive at a time, in an order that nothing repeats."""
    draw = random.Random(seed)
    for _ in range(REQUESTS):
        both.allocate(sizes(draw))
        both.compare()
        while both.held and draw.random() < len(both.held) / (2 * live):
            both.free(draw.randrange(len(both.held)))
            both.compare()
    both.held.clear()


@pytest.mark.parametrize("seed", range(6))
def test_the_model_equals_the_allocator_at_every_step(card: Card, seed: int) -> None:
    both = Both(CachingAllocator())
    replay(both, seed, live=4 * 2**seed)
    assert both.model.peak_reserved_bytes == torch.cuda.max_memory_reserved() == card.count("peak_bytes")
    assert not both.failed


@pytest.mark.parametrize("seed", range(6))
def test_it_does_under_a_limit_too(card: Card, seed: int) -> None:
    capacity = (32 << seed) * MIB
    card.set(other=MEMORY - CONTEXT - capacity)
    both = Both(CachingAllocator(capacity))
    replay(both, seed, live=100)
    assert both.failed


def test_a_process_holds_the_workspace_of_cublas_after_its_first_product(card: Card) -> None:
    one = torch.zeros(64, 64, device="cuda")
    result = one @ one
    del one, result
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == CUBLAS_WORKSPACE
    assert torch.cuda.memory_reserved() == segment_bytes(CUBLAS_WORKSPACE)


def test_a_limit_of_the_process_counts_like_the_size_of_the_card(card: Card) -> None:
    torch.cuda.set_per_process_memory_fraction(100 * MIB / MEMORY * (1 + 1e-12))
    both = Both(CachingAllocator(100 * MIB))
    replay(both, 9, live=100)
    assert both.failed
