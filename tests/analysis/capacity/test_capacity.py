"""What a capacity knows of data whose samples differ in size."""

from __future__ import annotations

import pytest

from batchlab.analysis.capacity.capacity import Capacity, MemoryPoint

SHAPES = ((8, 64), (8,))


@pytest.mark.parametrize("shapes", [SHAPES, None])
def test_the_worst_batch_is_that_of_the_largest_size(shapes):
    found = Capacity(
        points=(MemoryPoint(4, True, 2**20, "", ((4, 64), (4,))), MemoryPoint(8, True, 2**21, "", shapes)),
        max_micro_batch_size=8,
        status="verified",
        searched_up_to=100,
        smallest_failed=None,
        limit_bytes=2**22,
    )
    assert found.worst_batch == shapes
    assert found.as_dict()["worst_batch"] == shapes
