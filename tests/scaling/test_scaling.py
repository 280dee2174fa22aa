"""What follows the batch size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlab.core.experiment import AcrossBatch
from batchlab.scaling import beta2_at, describe_across_batch, weight_decay_at


@given(beta2=st.floats(0.5, 0.9999), ratio=st.floats(1 / 64, 64))
def test_half_life_in_tokens_is_held(beta2: float, ratio: float) -> None:
    half_life = math.log(0.5) / math.log(beta2)
    other = beta2_at(beta2, ratio)
    if 0 < other < 1:
        assert ratio * math.log(0.5) / math.log(other) == pytest.approx(half_life, rel=1e-6)


def test_known_values() -> None:
    assert beta2_at(0.95, 1.0) == 0.95
    assert beta2_at(0.95, 4.0) == pytest.approx(0.95**4)
    assert beta2_at(0.99, 0.25) == pytest.approx(0.99**0.25)
    assert beta2_at(0.0, 2.0) == 0.0
    assert weight_decay_at(0.1, 4.0) == pytest.approx(0.4)


def test_the_rule_is_printed_with_its_value() -> None:
    assert describe_across_batch(AcrossBatch.FIXED, 0.95, 4) == "beta2 0.95 at every batch size"
    assert describe_across_batch(AcrossBatch.HALF_LIFE, 0.95, 4) == "beta2 0.8145 (half-life in tokens held)"
    assert describe_across_batch(AcrossBatch.HALF_LIFE_AND_DECAY, 0.95, 0.5).endswith("weight decay × 0.5")
