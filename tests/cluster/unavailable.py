"""What the tests need and may be missing: a reason to skip them, and in CI to fail."""

from __future__ import annotations

import os

import pytest


def require(missing: str) -> None:
    """Skip the test with this reason, unless it is empty. Where CI is set fail instead, so that no test disappears."""
    if not missing:
        return
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
