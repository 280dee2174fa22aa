"""Tests of this folder need torch's CUDA build on the stand-in for CUDA; `make test-cuda` provides both."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from tests.cuda import card as cards


@pytest.fixture
def card() -> Iterator[cards.Card]:
    """The card of this process with nothing on it, and its defaults again afterwards."""
    found = cards.find()
    if found is None or torch.version.cuda is None:
        pytest.skip("needs torch's CUDA build on the stand-in for CUDA: make test-cuda")
    _clean(found)
    yield found
    _clean(found)


def _clean(card: cards.Card) -> None:
    card.set(memory=cards.MEMORY, other=0, fail_at=0, fail_for=1)
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.reset_peak_memory_stats()
    card.reset()
