"""Is the data of a person's trainer the same in every process? Samples at fixed positions are compared by content."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from batchlab.core.errors import StudyChanged
from batchlab.core.spec import Workload

LOOKED_AT = 256
"""Samples that are looked at, evenly spaced: reading all of a large data set takes minutes."""


def positions(length: int, most: int = LOOKED_AT) -> list[int]:
    """At most `most` evenly spaced indices below `length`, the first and the last among them."""
    return sorted({round(float(index)) for index in np.linspace(0, length - 1, min(length, most))})


def digest_of_samples(length: int, sample: Callable[[int], Any]) -> str:
    """Hash over the number of samples and the content of those looked at."""
    found = hashlib.sha256(str(length).encode())
    for index in positions(length):
        found.update(content_digest(sample(index)))
    return found.hexdigest()


def content_digest(value: Any) -> bytes:
    """Hash of a sample: numbers, text, arrays, and dicts and sequences of them; of anything else, its type alone."""
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(part)
        found.update(b"\0")
    return found.digest()


def _parts(value: Any) -> Iterable[bytes]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _parts(value[key])
    elif isinstance(value, list | tuple) and not all(isinstance(one, int | float) for one in value):
        for one in value:
            yield from _parts(one)
    elif isinstance(value, str | bytes | bool | int | float | list | tuple) or value is None:
        yield repr(value).encode()
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
        yield str(array.dtype).encode() + repr(array.shape).encode()
        yield np.ascontiguousarray(array).tobytes()
    else:
        yield type(value).__name__.encode()


def require_same_data(workload: Workload, digest: str, by: str) -> None:
    """Raise StudyChanged where `by` gives other data than when the study began."""
    if workload.data_digest and workload.data_digest != digest:
        raise StudyChanged(
            f"{by} gives other data than when this study began, so runs would not see the same samples. If it is drawn "
            "or split at random, give it a seed of its own, which does not follow that of the run; if it comes from "
            "files, restore them."
        )
