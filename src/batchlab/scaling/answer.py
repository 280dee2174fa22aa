"""What a scaling rule answers: a value that says where it came from, or a refusal that says why."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scaled:
    """A extrapolated number. `low` and `high` bound it at about 95 %; None where the rule knows no doubt."""

    value: float
    rule: str  # what was done, in words, with the numbers that went in
    source: str  # who showed it, and on what
    range: str  # where it was shown to hold
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """No number: `reason` is the sentence for the person, and says what would help."""

    reason: str


Scaling = Scaled | Refused


def refuse_unless_positive(**numbers: float) -> Refused | None:
    """A refusal naming the first number that is not finite and above zero; None when all are."""
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            return Refused(f"{name.replace('_', ' ')} is {number:g}; it must be a finite number above 0.")
    return None


def format_size(number: float) -> str:
    """Sizes in sentences: 8,192 stays exact, larger ones become 512k, 51.2M, 1.3B, 2.1T, and small ones keep digits."""
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e5, "")):
        if number >= factor and suffix:
            return f"{number / factor:.3g}{suffix}"
        if number >= factor:
            return f"{number / 1e3:.3g}k"
    return f"{number:,.0f}" if number >= 10 else f"{number:.3g}"
