"""Which layouts a study does not try."""

from __future__ import annotations

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint
from batchlab.core.batch import lay_out
from batchlab.study.stages.throughput import known_oom


def test_only_what_cannot_fit_is_known_to_run_out_of_memory() -> None:
    """Measured bytes that fall from 22 to 44 samples extrapolate to too much at 8, which is smaller than what fits."""
    capacity = Capacity(
        points=(MemoryPoint(22, True, 90), MemoryPoint(44, True, 60), MemoryPoint(256, False, None)),
        max_micro_batch_size=44,
        status="verified",
        searched_up_to=256,
        smallest_failed=256,
        limit_bytes=100,
    )
    assert (capacity.needed_bytes(8) or 0) > 100
    assert not known_oom(lay_out(8, 8), capacity)
    assert not known_oom(lay_out(128, 128), capacity)  # unknown, so it is tried
    assert known_oom(lay_out(256, 256), capacity)
    assert not known_oom(lay_out(256, 32), capacity)
