"""Memory of a run over all of its ranks: what fits is decided by the one that needs most."""

from __future__ import annotations

import json

from batchlab.core.protocols import MemoryReading
from batchlab.core.ranks import Ranks


def largest(own: MemoryReading, ranks: Ranks) -> MemoryReading:
    """The largest of each number over the ranks; None where no rank knows it."""
    if ranks.size == 1:
        return own
    readings = [MemoryReading(*json.loads(content)) for content in ranks.gather(json.dumps(own).encode())]
    known = [[value for value in column if value is not None] for column in list(zip(*readings, strict=True))[:4]]
    return MemoryReading(*(max(values, default=None) for values in known), own.measured)
