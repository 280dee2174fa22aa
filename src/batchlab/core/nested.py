"""Arrays in dicts and tuples, nested as a person's samples are: what a batch consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Nested = npt.NDArray[Any] | Mapping[str, "Nested"] | tuple["Nested", ...]
"""An array, or arrays in a dict or tuple."""


def leaves(nested: Nested) -> Iterator[npt.NDArray[Any]]:
    """All arrays, in order."""
    for _, array in named_leaves(nested):
        yield array


def named_leaves(nested: Nested, name: str = "") -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """(name, array), in order; the name is the path of keys and positions, as in "x.0" or "input_ids"."""
    if not isinstance(nested, Mapping | tuple):
        yield name, nested
        return
    for key, part in nested.items() if isinstance(nested, Mapping) else enumerate(nested):
        yield from named_leaves(part, f"{name}.{key}" if name else str(key))


def map_leaves(function: Callable[[npt.NDArray[Any]], Any], nested: Nested) -> Any:
    """The same dicts and tuples around what the function makes of each array."""
    if isinstance(nested, Mapping):
        return {key: map_leaves(function, part) for key, part in nested.items()}
    if isinstance(nested, tuple):
        return tuple(map_leaves(function, part) for part in nested)
    return function(nested)


def select(batch: tuple[Nested, ...], chosen: slice | list[int]) -> tuple[Nested, ...]:
    """Some samples of a batch; a slice gives views."""
    selected: tuple[Nested, ...] = map_leaves(lambda array: array[chosen], batch)
    return selected


def batch_size(batch: Nested) -> int:
    """Samples in a batch."""
    return len(next(leaves(batch)))


def same_content(one: Nested, other: Nested) -> bool:
    """Whether both have the same structure, types and values; NaN equals NaN."""
    first, second = list(named_leaves(one)), list(named_leaves(other))
    return [(name, array.dtype) for name, array in first] == [(name, array.dtype) for name, array in second] and all(
        np.array_equal(a, b, equal_nan=bool(np.issubdtype(a.dtype, np.inexact)))
        for (_, a), (_, b) in zip(first, second, strict=True)
    )
