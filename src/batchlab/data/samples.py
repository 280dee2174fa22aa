"""Datasets of independent samples: arrays (X, Y), lists of pairs or dicts, or any sequence of (x, y) or dicts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.core.nested import leaves, map_leaves, same_content
from batchlab.core.protocols import Batch
from batchlab.data.arrays import content_digest, stacked, to_array, to_arrays


class SampleDataset:
    """A Dataset over arrays, or over a sequence of samples. Values are converted with `np.asarray`, so tensors work.

    A sample is (x, y), or a tuple with further parts, or a dict; parts may be dicts and tuples again. Arrays, dicts of
    arrays, lists of equally shaped samples and objects with `tensors` (a torch TensorDataset) are gathered with one
    indexing operation per array; other sequences sample by sample. Raises InputError if lengths, names or shapes
    differ, if values are Python objects, if there are no samples, or if reading the same sample twice gives different
    values.
    """

    def __init__(self, source: Any, what: str = "data") -> None:
        self._what = what
        self._source = source
        self._arrays = self._as_arrays(source)
        if self._arrays is None:
            if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
                raise InputError(
                    f"The {what} is of type {type(source).__name__}; use arrays (X, Y), or an object with len() and "
                    "indexing that returns (x, y) or a dict."
                    + (" Give the loader's .dataset, and its collate_fn as collate=." if _is_loader(source) else "")
                )
            self._length = len(source)
        else:
            self._length = min((len(array) for array in leaves(self._arrays)), default=0)
        if self._length == 0:
            raise InputError(f"The {what} has no samples.")
        if self._arrays is None:
            self._require_repeatable()

    def __len__(self) -> int:
        return self._length

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """The samples, stacked along the first axis of every array."""
        if self._arrays is not None:
            gathered: Batch = map_leaves(lambda array: array[indices], self._arrays)
            return gathered
        return stacked([self._sample(int(index)) for index in indices], self._what)

    @cached_property
    def digest(self) -> str:
        """sha256 of the content."""
        return content_digest(self)

    def _as_arrays(self, source: Any) -> Batch | None:
        if isinstance(source, Mapping):
            return self._columns((source,))
        parts = getattr(source, "tensors", source)
        is_columns = isinstance(parts, tuple) and all(hasattr(part, "__len__") for part in parts)
        if is_columns and (len(parts) == 2 or (parts is not source and len(parts) > 2)):
            return self._columns(parts)
        if isinstance(source, list) and source:
            return stacked([self._sample(index) for index in range(len(source))], self._what)
        return None

    def _columns(self, parts: tuple[Any, ...]) -> Batch:
        """Arrays of all samples, or dicts of them."""
        columns = tuple(
            to_arrays(dict(part), self._what) if isinstance(part, Mapping) else to_array(part, self._what)
            for part in parts
        )
        lengths = [len(next(leaves(column), np.empty(0))) for column in columns]
        if len(columns) == 2 and lengths[0] != lengths[1]:
            raise InputError(
                f"The {self._what} has {lengths[0]:,} inputs and {lengths[1]:,} targets; give one target for each "
                "input."
            )
        found = {len(array) for array in leaves(columns)}
        if len(found) > 1:
            raise InputError(
                f"The {self._what} has arrays of {min(found):,} and of {max(found):,} samples; give all the same."
            )
        return columns

    def _sample(self, index: int) -> Batch:
        sample = self._source[index]
        if isinstance(sample, Mapping):
            return (to_arrays(sample, self._what),)
        if not isinstance(sample, tuple | list) or len(sample) < 2:
            raise InputError(
                f"Sample {index} of the {self._what} is of type {type(sample).__name__}; each sample must be (x, y) or "
                "a dict."
            )
        return tuple(to_arrays(part, self._what, str(at)) for at, part in enumerate(sample))

    def _require_repeatable(self) -> None:
        """Paired runs need the same sample every time; random augmentation belongs in the model or the loss."""
        if not same_content(self._sample(0), self._sample(0)):
            raise InputError(
                f"The {self._what} returns different values when sample 0 is read twice, so runs could not be "
                "compared; move random augmentation into the model or the loss."
            )


def _is_loader(source: Any) -> bool:
    """A torch DataLoader, which has the data and the collate function that a task takes."""
    return hasattr(source, "dataset") and hasattr(source, "collate_fn")
