"""The reading end of a pipe that a selector watches until it ends."""

from __future__ import annotations

import os
import select
import selectors


class WatchedPipe:
    """Owns `descriptor`; no method but `wait` blocks."""

    def __init__(self, descriptor: int, selector: selectors.BaseSelector | None) -> None:
        self._descriptor = descriptor
        self._selector: selectors.BaseSelector | None = None
        os.set_blocking(descriptor, False)
        if selector is not None:
            self.watch(selector)

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Let a selector see what is written, and what was written before."""
        self._selector = selector
        selector.register(self._descriptor, selectors.EVENT_READ)

    def read(self) -> tuple[bytes, bool]:
        """What was written since the last call, and whether all writing ends are closed."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return b"".join(pieces), False
            if not piece:
                self._stop_watching()
                return b"".join(pieces), True
            pieces.append(piece)

    def wait(self) -> None:
        """Block until there is something to read, or nothing can be written any more."""
        select.select([self._descriptor], [], [])

    def close(self) -> None:
        """Stop watching and close it."""
        self._stop_watching()
        os.close(self._descriptor)

    def _stop_watching(self) -> None:
        if self._selector is not None:
            self._selector.unregister(self._descriptor)
            self._selector = None
