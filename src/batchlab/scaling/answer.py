"""What a scaling rule answers: a number with the rule it comes from, or a refusal with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from batchlab.scaling.refusals import NotPositive, Refusal
from batchlab.scaling.rules import Rule


@dataclass(frozen=True, slots=True)
class Scaled:
    """An extrapolated number. `low` and `high` bound it at about 95 %; None where the rule knows no uncertainty."""

    value: float
    rule: Rule
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """No number."""

    reason: Refusal


Scaling = Scaled | Refused


def refuse_unless_positive(**numbers: float) -> Refused | None:
    """A refusal naming the first number that is not finite and above zero; None when all are."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            return Refused(NotPositive(name, number))
    return None
