"""Carries out the checks of `doctor --gpu`, whatever the framework, and keeps personal data out of their errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Numbers = dict[str, Any]

_PATH = re.compile(r"(/|[A-Za-z]:\\)[^\s'\":]+")
"""Paths in error messages name folders and users."""


def carried_out(checks: Mapping[str, Callable[[], Numbers]]) -> Iterator[Numbers]:
    """What each check found, or the error that ended it."""
    for name, check in checks.items():
        started = time.monotonic()
        try:
            found: Numbers = {"numbers": check()}
        except Exception as error:  # noqa: BLE001 - a device may fail in any way, and the others should still be tried
            text = _PATH.sub("…", str(error).partition("\n")[0])[:300]
            found = {"error": f"{type(error).__name__}: {text}"}
        yield {"check": name, **found, "seconds": round(time.monotonic() - started, 1)}
