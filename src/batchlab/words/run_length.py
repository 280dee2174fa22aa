"""How long a run of the sweep is: tokens that are the same at every batch size, or a time that is."""

from __future__ import annotations

from batchlab.analysis.findings import Findings
from batchlab.core.format import format_count, format_duration

MEASURED = "at the speed measured for each batch size"


def run_length(found: Findings) -> str:
    """`51.2M tokens` or `5 min 0 s of training`; empty before it is decided."""
    if found.run_seconds is not None:
        return f"{format_duration(found.run_seconds)} of training"
    return f"{format_count(found.token_budget)} {found.experiment.unit.value}" if found.token_budget else ""


def exact_run_length(found: Findings) -> str:
    """`51,200,000 tokens`, or the time with the tokens that it is."""
    if found.run_seconds is None:
        return f"{found.token_budget:,} {found.experiment.unit.value}" if found.token_budget else ""
    return f"{run_length(found)} {MEASURED} ({tokens_of_sizes(found)})"


def tokens_of_sizes(found: Findings) -> str:
    """`1.2M tokens at batch 4 to 3.4M at batch 64`, by the sizes with fewest and most."""
    sizes = found.tokens_by_size
    few, many = min(sizes, key=lambda size: (sizes[size], size)), max(sizes, key=lambda size: (sizes[size], -size))
    text = f"{format_count(sizes[few])} {found.experiment.unit.value} at batch {few:,}"
    return text if few == many else f"{text} to {format_count(sizes[many])} at batch {many:,}"
