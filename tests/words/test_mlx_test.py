"""Verdicts on what the checks of MLX's device found."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.words.mlx_test import describe_mlx_check

GIB = 2**30
DEVICE = {"name": "Apple M9 (gpu)", "usable_bytes": 8 * GIB, "framework": "mlx 1"}
SPEED = {"tokens_per_second": 1234.5, "loss": 1.0}


@pytest.mark.parametrize(
    ("check", "numbers", "verdict", "said"),
    [
        ("device", {**DEVICE, "recommended_bytes": 10 * GIB}, "ok", "8.00 GiB of the recommended 10.00 GiB"),
        ("device", {**DEVICE, "recommended_bytes": None}, "differs", "no Metal device"),
        ("precisions", {"precisions": {"fp32": SPEED, "bf16": SPEED}}, "ok", "fp32: 1,234 tokens/s; bf16"),
        ("precisions", {"precisions": {"bf16": {**SPEED, "loss": None}}}, "fail", "not finite in bf16"),
        ("resume", {"steps": 3, "same_bits": True, "largest_difference": 0.0}, "ok", "same bits"),
        ("resume", {"steps": 3, "same_bits": False, "largest_difference": 1e-6}, "differs", "1.0e-06"),
        ("resume", {"steps": 3, "same_bits": False, "largest_difference": 0.1}, "fail", "1.0e-01"),
        ("limit", {"limit_bytes": GIB, "fits": True, "fits_more": False}, "ok", "1.00 GiB holds"),
        ("limit", {"limit_bytes": GIB, "fits": True, "fits_more": True}, "fail", "allows more"),
        ("limit", {"limit_bytes": GIB, "fits": False, "fits_more": False}, "fail", "refuses"),
        ("working_set", {"recommended_bytes": None}, "ok", "not tried"),
    ],
)
def test_verdicts(check: str, numbers: dict[str, Any], verdict: str, said: str) -> None:
    found, text = describe_mlx_check({"check": check, "numbers": numbers})
    assert found == verdict
    assert said in text


@pytest.mark.parametrize(("slowest", "verdict"), [(0.15, "ok"), (0.5, "differs")])
def test_memory_that_becomes_slow_near_its_end(slowest: float, verdict: str) -> None:
    numbers = {"recommended_bytes": 10 * GIB, "first_seconds": 0.1, "slowest_seconds": slowest}
    found, text = describe_mlx_check({"check": "working_set", "numbers": {**numbers, "slowest_at_bytes": 9 * GIB}})
    assert found == verdict
    assert ("9.00 GiB" in text) == (verdict == "differs")


def test_a_check_that_ended_with_an_error_fails() -> None:
    assert describe_mlx_check({"check": "device", "error": "RuntimeError: no"}) == (
        "fail",
        "it ended with RuntimeError: no",
    )
