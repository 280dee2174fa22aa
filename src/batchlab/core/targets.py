"""How many targets a batch has, where the task does not count them itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from batchlab.core.errors import InputError
from batchlab.core.nested import Nested, leaves
from batchlab.core.protocols import Batch

IGNORED = -100
"""The label that cross-entropy leaves out, in torch (ignore_index) and in what collators of transformers pad with."""

NAMES = ("labels", "label", "targets", "target")
"""The entry of a dict that holds the targets: the first of these that it has."""


def targets_of(batch: tuple[Nested, ...]) -> Nested:
    """The targets: the last part of a tuple, or the entry of a dict that is named like them.

    Raises InputError for a dict that has none.
    """
    last = batch[-1]
    if not isinstance(last, Mapping):
        return last
    for name in NAMES:
        if name in last:
            return last[name]
    raise InputError(
        f"A batch is a dict of {', '.join(map(str, last))}, and none of them is named {', '.join(NAMES[:-1])} or "
        f"{NAMES[-1]}; give batchlab.task(count=…), a function of the batch that returns the number of targets."
    )


def count_targets(batch: Batch) -> float:
    """Elements of the targets. Of a dict's integers, without those equal to `IGNORED`."""
    targets = targets_of(batch)
    if not isinstance(batch[-1], Mapping):
        return float(sum(array.size for array in leaves(targets)))
    return float(
        sum(
            np.count_nonzero(array != IGNORED) if np.issubdtype(array.dtype, np.integer) else array.size
            for array in leaves(targets)
        )
    )
