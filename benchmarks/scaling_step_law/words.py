"""Results as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import numpy as np


def spread(values: Sequence[float]) -> str:
    """`median / 90th percentile / worst`."""
    return f"{np.median(values):.3f} / {np.percentile(values, 90):.3f} / {max(values):.2f}"


def paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def as_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
