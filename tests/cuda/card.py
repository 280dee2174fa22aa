"""The imaginary card of this process: what it is like, and what was counted on it (see standin/settings.h)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

MEMORY = 85_520_809_984
"""Bytes of a card, unless STANDIN_MEMORY says otherwise."""

CONTEXT = 524_288_000
"""Bytes that a process takes by using a card."""

SETTINGS = (
    *("devices", "memory", "context", "other", "capability", "fail_at", "fail_for", "assert_at", "log"),
    *("busy", "processes"),  # of NVML: percent of the time in which kernels run, and programs on the card
)


class Card:
    """The stand-in's library, which torch uses as libcudart."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.standin_get.restype = ctypes.c_longlong
        library.standin_set.argtypes = (ctypes.c_char_p, ctypes.c_longlong)

    def count(self, counter: str) -> int:
        """A counter since the last `reset`, or `used_bytes` and `peak_bytes` of card 0."""
        value = int(self._library.standin_get(counter.encode()))
        assert value >= 0, counter
        return value

    def reset(self) -> None:
        """Let all counters begin again, also that of the allocation that fails."""
        self._library.standin_reset()

    def set(self, **settings: int) -> None:
        """Change what the card is like."""
        for name, value in settings.items():
            assert self._library.standin_set(name.encode(), value) == 0, name

    @contextmanager
    def failing(self, number: int, times: int = 1) -> Iterator[None]:
        """Let the allocation of this number, from 1, and the `times` - 1 after it fail."""
        self.reset()
        self.set(fail_at=number, fail_for=times)
        try:
            yield
        finally:
            self.set(fail_at=0, fail_for=1)


def find() -> Card | None:
    """The card, or None where this process has no stand-in: it has another libcudart, or none."""
    try:
        library = ctypes.CDLL("libcudart.so.13")
    except OSError:
        return None
    return Card(library) if hasattr(library, "standin_get") else None


def environment(**settings: int) -> dict[str, str]:
    """Variables of a child process that has such a card."""
    assert set(settings) <= set(SETTINGS), settings
    return {**os.environ, **{f"STANDIN_{name.upper()}": str(value) for name, value in settings.items()}}
