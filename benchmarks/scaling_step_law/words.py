"""Results as Markdown."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

import numpy as np


def spread(values: Sequence[float]) -> str:
    """`median / 90th percentile / worst`; a dash for none."""
    if not values:
        return "–"
    return f"{np.median(values):.3f} / {np.percentile(values, 90):.3f} / {max(values):.2f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Not a number where there are no values."""
    return float(np.percentile(values, percent)) if values else math.nan


def decimals(value: float, places: int = 3) -> str:
    """A dash where there is no number, and no decimals from 10 up."""
    if math.isnan(value):
        return "–"
    return f"{value:.{places}f}" if value < 10 else f"{value:.0f}"


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def as_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
