"""A person's samples as arrays: numbers, lists, tensors, and dicts and tuples of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt

from batchlab.core.errors import InputError
from batchlab.core.nested import Nested, named_leaves
from batchlab.core.protocols import Batch, Dataset

FULL_DIGEST_BYTES = 256 * 2**20
_DIGEST_SAMPLES = 4096
_DIGEST_BLOCK = 256


def to_array(value: Any, what: str, name: str = "") -> npt.NDArray[Any]:
    """`np.asarray`, so tensors work. Raises InputError for text, ragged lists and other Python objects."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # ragged lists; tensors of a type that numpy lacks
        array = np.empty(0, object)
    entry = f" in {name!r}" if name and not name.isdigit() else ""
    if array.dtype.kind in "US":
        raise InputError(f"The {what} contains text{entry}; remove it, or turn it into numbers.")
    if array.dtype.kind not in "biufc":
        raise InputError(
            f"The {what} contains {type(value).__name__} values{entry} that cannot become an array of numbers; use "
            "arrays of equal size (pad or crop them, or give batchlab.task(collate=…)), not Python objects."
        )
    return array


def to_arrays(value: Any, what: str, name: str = "") -> Nested:
    """A value in which dicts and tuples stay, and everything else becomes an array; so does a tuple of numbers."""
    if isinstance(value, Mapping):
        return {str(key): to_arrays(part, what, f"{name}.{key}" if name else str(key)) for key, part in value.items()}
    if isinstance(value, tuple) and not all(isinstance(part, Number) for part in value):
        return tuple(to_arrays(part, what, f"{name}.{at}") for at, part in enumerate(value))
    return to_array(value, what, name)


def content_digest(dataset: Dataset) -> str:
    """sha256 of all content or, above 256 MiB, of the length and 4096 evenly spaced samples."""
    first = list(named_leaves(dataset.gather(np.zeros(1, np.int64))))
    digest = hashlib.sha256(f"samples {len(dataset)}".encode())
    for name, array in first:
        digest.update(f" {name} {array.dtype.str} {array.shape[1:]}".encode())
    whole = sum(array.nbytes for _, array in first) * len(dataset) <= FULL_DIGEST_BYTES
    chosen = np.arange(len(dataset)) if whole else np.linspace(0, len(dataset) - 1, _DIGEST_SAMPLES).astype(np.int64)
    for start in range(0, len(chosen), _DIGEST_BLOCK):
        for _, array in named_leaves(dataset.gather(chosen[start : start + _DIGEST_BLOCK])):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def stacked(samples: list[Batch], what: str) -> Batch:
    """Samples stacked along a new first axis. Raises InputError where their structure or shapes differ."""
    parts = {len(sample) for sample in samples}
    if len(parts) > 1:
        raise InputError(f"The {what} has samples of {min(parts)} and of {max(parts)} parts; give all the same.")
    pair = parts == {2}
    return tuple(
        _stacked(list(column), what, ("inputs", "targets")[at] if pair else f"part {at}")
        for at, column in enumerate(zip(*samples, strict=True))
    )


def _stacked(parts: list[Any], what: str, name: str) -> Any:
    """Parts with the same dicts and tuples around them, as one."""
    first = parts[0]
    if isinstance(first, Mapping | tuple):
        forms = {_form(part) for part in parts}
        if len(forms) > 1:
            one, other = sorted(forms)[:2]
            raise InputError(f"The {what} has samples with {one} and samples with {other}; give all the same.")
        if isinstance(first, tuple):
            return tuple(_stacked([part[at] for part in parts], what, f"{name}.{at}") for at in range(len(first)))
        return {key: _stacked([part[key] for part in parts], what, repr(key)) for key in first}
    shapes = {np.shape(part) for part in parts}
    if len(shapes) > 1:
        some = " and ".join(str(shape) for shape in sorted(shapes)[:2])
        raise InputError(
            f"The {what} has {name} of different shapes, {some}; pad or crop them to one shape, or give "
            "batchlab.task(collate=…), a function from a list of samples to a batch."
        )
    return np.stack(parts)


def _form(part: Any) -> str:
    if isinstance(part, Mapping):
        return ", ".join(sorted(map(str, part))) or "no entry"
    return f"{len(part)} parts" if isinstance(part, tuple) else "an array"
