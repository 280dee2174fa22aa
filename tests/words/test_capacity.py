"""The largest micro-batch as a person reads it."""

from __future__ import annotations

import pytest

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint
from batchlab.words.capacity import capacity_lines


def capacity(points: tuple[MemoryPoint, ...], **more: object) -> Capacity:
    known = {"max_micro_batch_size": 8, "status": "verified", "searched_up_to": 100, "smallest_failed": None}
    return Capacity(points=points, **{**known, "limit_bytes": 2**22, **more})


@pytest.mark.parametrize(("shapes", "said"), [(((8, 64), (8,)), True), (None, False)])
def test_the_worst_batch_is_named_as_a_budget_of_elements(shapes, said):
    points = (MemoryPoint(4, True, 2**20, "", ((4, 64), (4,))), MemoryPoint(8, True, 2**21, "", shapes))
    line = "worst batch  the largest samples ran, arrays of 8×64 and 8: a budget of 512 and 8 elements"
    assert (line in "\n".join(capacity_lines(capacity(points)))) == said
