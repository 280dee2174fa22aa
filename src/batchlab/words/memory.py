"""The report's notes on memory by category, on other cards, and on memory variants."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.core.format import format_bytes


def trace_note(found: Capacity) -> str:
    """What the table of memory by category was read from; empty where nothing was traced."""
    if not found.phases:
        return ""
    size = found.max_micro_batch_size or 1
    at = min((point.micro_batch_size for point in found.traced), key=lambda traced: abs(traced - size))
    note = f"Traced at micro-batch {at:,}, without the workspace that kernels allocate internally."
    if found.unseen_bytes is not None:
        compared = "more" if found.unseen_bytes >= 0 else "less"
        note += f" Runs used {format_bytes(abs(found.unseen_bytes))} {compared} than that."
    return note
