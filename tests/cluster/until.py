"""Waiting for what other programs do."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(met: Callable[[], object], failure: str, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)
