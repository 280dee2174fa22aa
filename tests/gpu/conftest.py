"""Tests of this folder need a CUDA device; without one each is skipped and says so."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def cuda() -> torch.device:
    """The device, with an empty allocator."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    torch.cuda.empty_cache()
    return torch.device("cuda:0")
