"""What is known about the order in which runs of different batch sizes saw the data."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Pairing(StrEnum):
    """How far runs with the same seed can be compared in pairs. What each forbids is said in docs/integrations.md."""

    VERIFIED = "verified"  # the order of samples was recorded per step, and is equal across batch sizes
    DECLARED = "declared"  # a seed was passed, and two runs with equal seeds came out equal
    NONE = "none"


def weakest(pairings: Iterable[Pairing]) -> Pairing:
    """What all of these runs together can claim; NONE where there are none."""
    found = set(pairings)
    if not found or Pairing.NONE in found:
        return Pairing.NONE
    return Pairing.DECLARED if Pairing.DECLARED in found else Pairing.VERIFIED
