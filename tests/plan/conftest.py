from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings


@pytest.fixture
def findings(synthetic_study: Callable[..., Any]) -> Findings:
    """Batch 64 in two micro-batches of 32 is the best of several statistically tied sizes, and the fastest."""
    return assemble(
        *synthetic_study(
            sizes=(4, 8, 16, 32, 64, 128), batch_curvature=0.002, best_batch=64, best_lr=3e-3, noise_sd=0.002
        )
    )
