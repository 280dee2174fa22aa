"""The ratio of two means and its interval."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.analysis.critical.ratio import block_means, fieller


def test_fieller_agrees_with_the_set_it_is_defined_by() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.normal(3, 1, 25), rng.normal(10, 2, 25)
    found = fieller(y, x)
    assert found.low is not None
    assert found.high is not None
    for theta in (found.low, found.high):
        rest = y - theta * x
        assert abs(rest.mean()) / (rest.std(ddof=1) / 5) == pytest.approx(2.063899, rel=1e-5)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_make_one_block_or_as_many_as_there_are(count: int) -> None:
    rows = np.arange(2.0 * count).reshape(count, 2)
    assert block_means(rows, block_length=count).tolist() == [rows.mean(axis=0).tolist()]
    assert block_means(rows, block_length=1).tolist() == rows.tolist()
