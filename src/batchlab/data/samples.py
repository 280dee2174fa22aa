"""Datasets of independent samples: arrays (X, Y), lists of pairs, or any sequence of (x, y)."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.core.protocols import Batch

FULL_DIGEST_BYTES = 256 * 2**20
_DIGEST_SAMPLES = 4096
_DIGEST_BLOCK = 256


class SampleDataset:
    """A Dataset over a pair of arrays or a sequence of (x, y). Values are converted with `np.asarray`, so tensors work.

    Arrays, lists of equally shaped pairs and objects with a `tensors` pair (a torch TensorDataset) are gathered with
    one indexing operation; other sequences sample by sample. Raises InputError if lengths or shapes differ, if values
    are Python objects, if there are no samples, or if reading the same sample twice gives different values.
    """

    def __init__(self, source: Any, what: str = "data") -> None:
        self._what = what
        self._source = source
        self._arrays = self._as_arrays(source)
        if self._arrays is None:
            if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
                raise InputError(
                    f"The {what} is of type {type(source).__name__}; use arrays (X, Y), or an object with len() and "
                    "indexing that returns (x, y)."
                )
            self._length = len(source)
        else:
            self._length = len(self._arrays[0])
        if self._length == 0:
            raise InputError(f"The {what} has no samples.")
        if self._arrays is None:
            self._require_repeatable()

    def __len__(self) -> int:
        return self._length

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """(x, y), stacked along the first axis."""
        if self._arrays is not None:
            x, y = self._arrays
            return x[indices], y[indices]
        pairs = [self._pair(int(index)) for index in indices]
        return self._stack([x for x, _ in pairs], "inputs"), self._stack([y for _, y in pairs], "targets")

    @cached_property
    def digest(self) -> str:
        """sha256 of all content or, above 256 MiB, of the length and 4096 evenly spaced samples."""
        first = self.gather(np.zeros(1, np.int64))
        digest = hashlib.sha256(f"samples {len(self)}".encode())
        for part in first:
            digest.update(f" {part.dtype.str} {part.shape[1:]}".encode())
        whole = sum(part.nbytes for part in first) * len(self) <= FULL_DIGEST_BYTES
        chosen = np.arange(len(self)) if whole else np.linspace(0, len(self) - 1, _DIGEST_SAMPLES).astype(np.int64)
        for start in range(0, len(chosen), _DIGEST_BLOCK):
            for part in self.gather(chosen[start : start + _DIGEST_BLOCK]):
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def _as_arrays(self, source: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        pair = getattr(source, "tensors", source)
        if isinstance(pair, tuple) and len(pair) == 2 and all(hasattr(part, "__len__") for part in pair):
            x, y = self._array(pair[0]), self._array(pair[1])
            if len(x) != len(y):
                raise InputError(
                    f"The {self._what} has {len(x):,} inputs and {len(y):,} targets; give one target for each input."
                )
            return x, y
        if isinstance(source, list) and source:
            pairs = [self._pair(index) for index in range(len(source))]
            return self._stack([x for x, _ in pairs], "inputs"), self._stack([y for _, y in pairs], "targets")
        return None

    def _pair(self, index: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        sample = self._source[index]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise InputError(
                f"Sample {index} of the {self._what} is of type {type(sample).__name__}; each sample must be (x, y)."
            )
        return self._array(sample[0]), self._array(sample[1])

    def _array(self, value: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.empty(0, object)  # numpy rejects ragged lists
        if array.dtype == object:
            raise InputError(
                f"The {self._what} contains {type(value).__name__} values that cannot become an array of numbers; use "
                "arrays of equal size (pad or crop them), not Python objects."
            )
        return array

    def _stack(self, parts: list[npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            some = " and ".join(str(shape) for shape in sorted(shapes)[:2])
            raise InputError(f"The {self._what} has {name} of different shapes, {some}; pad or crop them to one shape.")
        return np.stack(parts)

    def _require_repeatable(self) -> None:
        """Paired runs need the same sample every time; random augmentation belongs in the model or the loss."""
        for one, other in zip(self._pair(0), self._pair(0), strict=True):
            if not np.array_equal(one, other, equal_nan=np.issubdtype(one.dtype, np.inexact)):
                raise InputError(
                    f"The {self._what} returns different values when sample 0 is read twice, so runs could not be "
                    "compared; move random augmentation into the model or the loss."
                )
