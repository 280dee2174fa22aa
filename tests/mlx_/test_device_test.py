"""The checks of MLX's device, on the CPU: every one ends, and what batchlab promises holds there."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx.core", reason="needs MLX: make test-mlx")
pytestmark = pytest.mark.mlx

from batchlab.mlx_ import device_test  # noqa: E402
from batchlab.words.mlx_test import describe_mlx_check  # noqa: E402


def test_every_check_ends_and_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_test, "SECONDS", 0.05)
    found = {check["check"]: check for check in device_test.results()}
    verdicts = {name: describe_mlx_check(check) for name, check in found.items()}
    assert list(found) == list(device_test.CHECKS)
    assert {name for name, (verdict, _) in verdicts.items() if verdict == "fail"} == set(), verdicts
    assert {verdicts[name][0] for name in ("precisions", "resume", "limit")} == {"ok"}
