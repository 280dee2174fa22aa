"""Memory of a run over all of its ranks: what fits is decided by the one that needs most."""

from __future__ import annotations

import json
from collections.abc import Iterable

from batchlab.core.protocols import MemoryReading
from batchlab.core.ranks import Ranks


def largest(own: MemoryReading, ranks: Ranks) -> MemoryReading:
    """The largest of each number over the ranks; None where no rank knows it."""
    if ranks.size == 1:
        return own
    readings = [MemoryReading(*json.loads(content)) for content in ranks.gather(json.dumps(own).encode())]

    def most(values: Iterable[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    return MemoryReading(
        most(reading.in_use_bytes for reading in readings),
        most(reading.reserved_bytes for reading in readings),
        most(reading.peak_in_use_bytes for reading in readings),
        most(reading.peak_bytes for reading in readings),
        own.measured,
    )
