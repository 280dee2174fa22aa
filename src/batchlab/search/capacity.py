"""Which micro-batch sizes to try: the largest that fits, with as few probes as possible and hardly any failures.

A failing probe costs as much as a passing one and may disturb other users of a device, so sizes are approached from
below; but since usually everything that a sweep needs fits, the needed size is tried early: three probes then suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

# With `prove` and no failure, sizes beyond this multiple of what is needed are not looked for.
_CEILING = 1024


class CapacitySearch:
    """Ask/tell search for the largest micro-batch size of at most `needed` that passes.

    Rounds of one size: smallest, about a quarter of needed (with smallest a line of memory against size), needed. After
    a failure doubling from the largest that passed, then bisection. With `prove` it goes on beyond `needed`, until one
    size passed and the next failed. ValueError for smallest < 1 or > needed.
    """

    def __init__(self, needed: int, smallest: int = 1, prove: bool = False) -> None:
        if not 1 <= smallest <= needed:
            raise ValueError(f"sizes from {smallest} to {needed} were asked; give 1 ≤ smallest ≤ needed")
        self.needed = needed
        self.smallest = smallest
        self.prove = prove
        self.largest: int | None = None
        """The largest size that passed."""
        self.smallest_failed: int | None = None

    @property
    def status(self) -> Literal["verified", "proved", "none"]:
        """verified: `largest` ran; proved: and one more failed; none: nothing passed (yet)."""
        if self.largest is None:
            return "none"
        return "proved" if self.smallest_failed == self.largest + 1 else "verified"

    def ask(self) -> Sequence[int]:
        """The next size to probe, alone in its round; empty when done. Asking twice gives the same."""
        size = self._next()
        return () if size is None else (size,)

    def tell(self, sizes: Sequence[int], fits: Sequence[bool]) -> None:
        """What came of the round that was asked. ValueError for any other."""
        if list(sizes) != list(self.ask()) or len(fits) != len(sizes):
            raise ValueError(f"told of sizes {list(sizes)} with {len(fits)} outcomes; asked were {list(self.ask())}")
        for size, passed in zip(sizes, fits, strict=True):
            if passed:
                self.largest = size
            else:
                self.smallest_failed = size

    def _next(self) -> int | None:
        passed, failed = self.largest, self.smallest_failed
        if passed is None:
            return self.smallest if failed is None else None
        if failed is not None:
            # Doubling from below fails at most once more; bisection from above could fail every time.
            return min(2 * passed, (passed + failed) // 2) if failed - passed > 1 else None
        if passed < self.needed:
            quarter = max(self.needed // 4, 1)
            return quarter if passed < quarter else self.needed
        if self.prove and passed < _CEILING * self.needed:
            return 2 * passed
        return None
