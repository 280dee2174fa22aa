"""What runs can claim together is what the weakest of them can."""

from __future__ import annotations

import pytest

from batchlab.core.pairing import Pairing, weakest


@pytest.mark.parametrize(
    ("pairings", "together"),
    [
        ([], Pairing.NONE),
        ([Pairing.VERIFIED, Pairing.VERIFIED], Pairing.VERIFIED),
        ([Pairing.VERIFIED, Pairing.DECLARED], Pairing.DECLARED),
        ([Pairing.VERIFIED, Pairing.DECLARED, Pairing.NONE], Pairing.NONE),
    ],
)
def test_the_weakest_counts(pairings: list[Pairing], together: Pairing) -> None:
    assert weakest(pairings) is together
