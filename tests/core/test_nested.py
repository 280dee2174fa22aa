"""Arrays in dicts and tuples, and the targets among them."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.core.errors import InputError
from batchlab.core.nested import batch_size, leaves, map_leaves, named_leaves, same_content, select
from batchlab.core.protocols import Batch
from batchlab.core.targets import count_targets

X = np.arange(12.0).reshape(4, 3)
BATCH: Batch = ({"image": X, "more": (X[:, 0], {"age": X[:, 1]})}, np.arange(4))


def test_every_array_is_reached_and_the_structure_kept() -> None:
    assert [name for name, _ in named_leaves(BATCH)] == ["0.image", "0.more.0", "0.more.1.age", "1"]
    doubled = map_leaves(lambda array: 2 * array, BATCH)
    assert doubled[0]["more"][1]["age"].tolist() == (2 * X[:, 1]).tolist()
    assert isinstance(doubled[0]["more"], tuple)


def test_some_samples_of_every_array() -> None:
    for chosen in (slice(1, 3), [1, 2]):
        part = select(BATCH, chosen)
        assert batch_size(part) == 2
        assert all(len(array) == 2 for array in leaves(part))
        assert list(leaves(part))[-1].tolist() == [1, 2]


def test_content_is_compared_with_names_and_types() -> None:
    with_nan = {"a": np.array([1.0, np.nan])}
    assert same_content(with_nan, {"a": np.array([1.0, np.nan])})
    assert not same_content(with_nan, {"b": with_nan["a"]})
    assert not same_content(with_nan, {"a": with_nan["a"].astype(np.float32)})


def test_targets_are_counted() -> None:
    labels = np.array([[3, -100, 4], [-100, -100, 1]])
    assert count_targets((X, labels)) == 6  # of a pair, every element
    assert count_targets(({"input_ids": labels, "labels": labels},)) == 3
    assert count_targets(({"x": X, "target": X[:, 0]},)) == 4
    assert count_targets((X, {"label": np.arange(4), "box": X})) == 4
    with pytest.raises(InputError, match="dict of x, and none of them is named labels"):
        count_targets(({"x": X},))
