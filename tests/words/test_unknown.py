from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchlab.analysis.assemble import assemble
from batchlab.words.unknown import unknown

Study = Callable[..., Any]


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ({"seeds": 1}, "whether any difference is more than noise (n = 1)"),
        ({"learning_rates": (1e-3,)}, "the best learning rate of batch 4, 8, 16, 32 and 64 (one was tried)"),
        ({"out_of_memory": (64,)}, "batch 64: no finite loss"),
        ({"token_budget": 64 * 64 * 20}, "batch 32 and 64: too few steps at this budget to be judged"),
        ({}, "budgets beyond 410k tokens"),
        ({}, "the critical batch size"),
        ({}, "batches of 49 and more: only with gradient accumulation"),
        ({"max_micro_batch_size": 64}, "whether micro-batches above 64 fit"),
    ],
)
def test_what_is_unknown_is_listed(synthetic_study: Study, settings: dict[str, Any], phrase: str) -> None:
    assert phrase in unknown(assemble(*synthetic_study(**settings)))
