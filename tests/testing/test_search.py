"""check_search rejects broken implementations; each violates one requirement on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from batchlab.testing import check_search


class Countdown:
    def __init__(self, left: int = 3) -> None:
        self.left = left

    def ask(self) -> Sequence[int]:
        return [self.left] if self.left else []

    def tell(self, proposals: Sequence[int], outcomes: Sequence[int]) -> None:
        self.left -= 1


class Endless(Countdown):
    def tell(self, proposals: Sequence[int], outcomes: Sequence[int]) -> None: ...


class Random(Countdown):
    def ask(self) -> Sequence[int]:
        return [int(np.random.default_rng().integers(1 << 60))]


def test_broken_searches_are_rejected() -> None:
    assert check_search(Countdown, lambda n: n) == [3, 2, 1]
    with pytest.raises(AssertionError, match="not finished after 20 rounds"):
        check_search(Endless, lambda n: n, max_rounds=20)
    with pytest.raises(AssertionError, match="return the same round"):
        check_search(Random, lambda n: n)
