"""Verdicts of the checks of a card."""

from __future__ import annotations

from typing import Any

import pytest

from batchlab.words.card_test import describe_card_check

GIB = 2**30


@pytest.mark.parametrize(
    ("check", "numbers", "verdict"),
    [
        ("allocator", {"steps": 400, "differing": 0, "configured": False}, "ok"),
        ("allocator", {"steps": 400, "differing": 3, "configured": True}, "differs"),
        ("traces", {"errors": {"decoder": {"allocated": 0.01, "reserved": -0.07}}}, "ok"),
        ("traces", {"errors": {"decoder": {"allocated": 0.06, "reserved": 0.0}}}, "differs"),
        ("traces", {"errors": {"decoder": None}}, "differs"),
        ("precisions", {"precisions": {"bf16": {"loss": 1.0, "tokens_per_second": 9.0, "peak_flops": 1e12}}}, "ok"),
        ("precisions", {"precisions": {"fp16": {"loss": None, "tokens_per_second": 9.0, "peak_flops": None}}}, "fail"),
        ("resume", {"steps": 3, "same_bits": True, "largest_difference": 0.0}, "ok"),
        ("resume", {"steps": 3, "same_bits": False, "largest_difference": 1e-6}, "differs"),
        ("resume", {"steps": 3, "same_bits": False, "largest_difference": 0.1}, "fail"),
        ("ranks", {"cards": 1}, "ok"),
        ("ranks", {"cards": 4, "right": True, "bytes": GIB, "seconds": 0.01}, "ok"),
        ("ranks", {"cards": 4, "right": False, "bytes": GIB, "seconds": 0.01}, "fail"),
        ("limit", {"fits": True, "fits_more": False}, "ok"),
        ("limit", {"fits": False, "fits_more": False}, "fail"),
        ("limit", {"fits": True, "fits_more": True}, "fail"),
        ("out_of_memory", {"recognised": True, "trains_again": True, "lost_bytes": 0}, "ok"),
        ("out_of_memory", {"recognised": True, "trains_again": True, "lost_bytes": GIB}, "differs"),
        ("out_of_memory", {"recognised": False, "trains_again": True, "lost_bytes": 0}, "fail"),
        ("host_memory_fallback", {"falls_back": False, "free_bytes": GIB}, "ok"),
        ("host_memory_fallback", {"falls_back": True, "free_bytes": GIB}, "differs"),
    ],
)
def test_the_verdict_of_a_check(check: str, numbers: dict[str, Any], verdict: str) -> None:
    assert describe_card_check({"check": check, "numbers": numbers})[0] == verdict


def test_a_check_that_ended_with_an_error_failed() -> None:
    assert describe_card_check({"check": "limit", "error": "RuntimeError: x"}) == (
        "fail",
        "it ended with RuntimeError: x",
    )
