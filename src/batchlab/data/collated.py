"""Samples that a person's own function makes into a batch, e.g. a data collator that pads to the longest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.core.nested import Nested, named_leaves, same_content
from batchlab.core.protocols import Batch
from batchlab.data.arrays import content_digest, to_arrays


class CollatedDataset:
    """A Dataset over anything with `len()` and indexing, whose batches `collate(samples)` makes.

    Called for one micro-batch at a time, so padding depends on the micro-batch and must not change the loss. Raises
    InputError if the function returns no batch, or different values for the same samples.
    """

    def __init__(self, source: Any, collate: Callable[[list[Any]], Any], what: str = "data") -> None:
        if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise InputError(
                f"The {what} is of type {type(source).__name__}; with collate=, use an object with len() and indexing "
                "that returns one sample."
            )
        self._source, self._collate, self._what = source, collate, what
        self._length = len(source)
        if self._length == 0:
            raise InputError(f"The {what} has no samples.")
        few = np.arange(min(2, self._length))
        if not same_content(self.gather(few), self.gather(few)):
            raise InputError(
                f"Reading and collating the same samples of the {what} twice gives different values, so runs could not "
                "be compared; move random masking or augmentation into the model or the loss."
            )

    def __len__(self) -> int:
        return self._length

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """What `collate` makes of these samples: a dict, or the parts of a tuple."""
        made = self._collate([self._sample(int(index)) for index in indices])
        batch: Nested = to_arrays(tuple(made) if isinstance(made, list) else made, self._what)
        if isinstance(batch, np.ndarray):
            raise InputError(
                f"collate=… returned {type(made).__name__} for the {self._what}; return a dict of arrays, or (x, y)."
            )
        for name, array in named_leaves(batch):
            if array.ndim == 0 or len(array) != len(indices):
                raise InputError(
                    f"collate=… was given {len(indices)} samples of the {self._what} and returned {name!r} of shape "
                    f"{array.shape}; the first axis must be the sample."
                )
        return (batch,) if isinstance(batch, Mapping) else batch

    def _sample(self, index: int) -> Any:
        """A collate function may take entries out of the dicts that it is given."""
        sample = self._source[index]
        return dict(sample) if isinstance(sample, dict) else sample

    @cached_property
    def digest(self) -> str:
        """The digest of the batches."""
        return content_digest(self)
