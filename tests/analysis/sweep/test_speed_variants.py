"""What is expected of another precision, and when a variant counts as faster."""

from __future__ import annotations

import pytest

from batchlab.analysis.sweep.speed_variants import expected_speed, speed_variants
from batchlab.storage.decisions import SpeedVariantDecision

OWN = SpeedVariantDecision(tokens_per_second=100.0, lowest=98.0, highest=102.0, flops_per_token=5e9, peak_flops=1e12)


def test_only_the_products_become_faster() -> None:
    """Of 10 ms a token, products take 5 ms at the peak; with four times the peak they take 1.25 ms."""
    assert expected_speed(OWN, 4e12) == pytest.approx(1 / 6.25e-3)
    assert expected_speed(OWN, 1e12) == pytest.approx(100.0)


@pytest.mark.parametrize("missing", ["flops_per_token", "peak_flops", "tokens_per_second"])
def test_nothing_is_expected_where_something_is_unknown(missing: str) -> None:
    assert expected_speed(OWN.model_copy(update={missing: None}), 4e12) is None


def test_a_variant_is_faster_where_every_block_is_and_the_gain_is_worthwhile() -> None:
    def at(rate: float, spread: float) -> SpeedVariantDecision:
        return SpeedVariantDecision(
            tokens_per_second=rate, lowest=rate - spread, highest=rate + spread, peak_flops=4e12
        )

    measured = {
        "bf16": at(150.0, 5.0),
        "compile": at(104.0, 0.5),  # too little
        "noisy": at(120.0, 30.0),  # its slowest block is slower
        "fp16": SpeedVariantDecision(why_not="no kernel"),
    }
    settings = {"bf16": {"precision": "bf16"}, "compile": {"compile": "default"}, "noisy": {}, "fp16": {}}
    bf16, compiled, noisy, fp16 = speed_variants(OWN, measured, settings)
    assert [found.faster for found in (bf16, compiled, noisy, fp16)] == [True, False, False, False]
    assert bf16.gain == pytest.approx(0.5)
    assert bf16.expected == pytest.approx(160.0)
    assert compiled.expected is None
    assert fp16.why_not == "no kernel"
