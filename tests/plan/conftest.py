from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.analysis.findings import Findings


@pytest.fixture
def findings(synthetic_study: Callable[..., Any]) -> Findings:
    """Batch 64 in two micro-batches of 32 is the fastest of five statistically tied sizes."""
    return assemble(*synthetic_study(batch_curvature=0.0005))
