"""Contract test for Dataset."""

from __future__ import annotations

import numpy as np

from batchlab.core.nested import leaves, map_leaves, same_content, select
from batchlab.core.protocols import Dataset
from batchlab.testing.requirement import require, require_raises


def check_dataset(dataset: Dataset) -> None:
    """Check that samples are stacked in the requested order and repeatable, and that the digest is stable.

    Raises AssertionError for the first violated requirement.
    """
    n = len(dataset)
    require(n >= 1, "a dataset must have at least one sample")
    chosen = np.unique(np.linspace(0, n - 1, min(n, 7)).astype(np.int64))
    batch = dataset.gather(chosen)
    require(isinstance(batch, tuple) and len(batch) >= 1, "gather must return a tuple of arrays")
    for part in leaves(batch):
        require(isinstance(part, np.ndarray), f"gather must return numpy arrays, not {type(part).__name__}")
        require(len(part) == len(chosen), f"gather of {len(chosen)} samples returned {len(part)} of them")
    original = map_leaves(np.copy, batch)
    require(same_content(batch, dataset.gather(chosen)), "the same indices must give the same samples again")
    backwards = dataset.gather(chosen[::-1].copy())
    require(
        same_content(select(batch, slice(None, None, -1)), backwards), "samples must be in the order of the indices"
    )
    twice = dataset.gather(np.repeat(chosen[-1:], 2))
    require(
        same_content(select(twice, slice(0, 1)), select(twice, slice(1, 2))),
        "a repeated index must repeat the sample",
    )
    for part in leaves(dataset.gather(chosen)):
        if part.flags.writeable:
            part[...] = np.zeros((), part.dtype)
    require(same_content(original, dataset.gather(chosen)), "changing a gathered batch must not change the dataset")
    outside = np.array([n], dtype=np.int64)
    require_raises(lambda: dataset.gather(outside), f"index {n} of {n} samples must raise IndexError", IndexError)
    digest = dataset.digest
    require(isinstance(digest, str) and bool(digest), "digest must be a non-empty string")
    require(dataset.digest == digest, "digest must not change")
