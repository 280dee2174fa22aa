"""Texts as numbers in base units: `25,701`, `327.68M`, `7.22 hrs`, `28.49 GiB`, `1e-3`, `~5`."""

from __future__ import annotations

import math
import re

from batchlab.analysis.audit.table import Quantity

NOTHING = frozenset({"", "-", "–", "—", "n/a", "na", "none", "null", "nil", "?", "x", "✗", "oom", "ok", "/"})
"""Cells that hold no value."""

SECONDS = {
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
BYTES = {
    **dict.fromkeys(("b", "byte", "bytes"), 1.0),
    **{f"{prefix}b": 1000.0**power for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024.0**power for power, prefix in enumerate("kmgt", start=1)},
}
COUNTS = {"k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9, "t": 1e12, "million": 1e6, "billion": 1e9, "%": 0.01}

TIMES = frozenset({Quantity.SECONDS, Quantity.STEP_SECONDS})
MEMORY = frozenset({Quantity.PEAK_BYTES, Quantity.MEMORY_LIMIT, Quantity.OPTIMIZER_BYTES})

_NUMBER = re.compile(r"[~≈<>=]*\s*([+-]?(?:\d[\d,_ ]*)?\.?\d+(?:[eE][+-]?\d+)?|[+-]?inf|nan)\s*(.*)", re.IGNORECASE)


def factors(quantity: Quantity) -> dict[str, float]:
    """Units in which a quantity may be written, and what one of them is in its base unit."""
    return SECONDS if quantity in TIMES else BYTES if quantity in MEMORY else COUNTS


def parse_number(text: str, quantity: Quantity, unit: float = 1.0) -> float | None:
    """The value in base units; NaN where the cell says so, None where it holds no value or something else.

    unit: of the column, for numbers without their own.
    """
    cleaned = text.strip().strip("*`✓✔ ").strip()
    if cleaned.lower() in NOTHING:
        return None
    match = _NUMBER.fullmatch(cleaned)
    if not match:
        return None
    value = float(re.sub(r"[,_ ]", "", match[1]))
    rest = match[2].strip().lower()
    word = re.match(r"[a-z%]+", rest)
    own = factors(quantity).get(word[0]) if word else None
    if rest and own is None and not re.match(r"[(\[a-z/%]", rest):
        return None
    return value * (own if own is not None else unit) if math.isfinite(value) else value
