"""Windows over one long sequence of token ids, usually memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from batchlab.errors import InputError
from batchlab.protocols import Batch

_CHUNK = 1 << 24  # elements read at once from a memory-mapped file


class TokenDataset:
    """Sample j is tokens [j·T, j·T + T] of the sequence: x its first T tokens, y the same shifted by one.

    Windows do not overlap (each ends with the token the next begins with), so no token is a target twice in an epoch.
    x and y are int64. InputError, naming the data as `what`, for ids that are not non-negative whole numbers in one
    dimension, and for fewer than sequence_length + 1 of them.
    """

    def __init__(self, tokens: npt.NDArray[Any], sequence_length: int, what: str = "data") -> None:
        # A plain view of a memory map is still mapped, and indexes several times faster than the subclass.
        self.tokens = np.asarray(tokens)
        self.sequence_length = sequence_length
        _require_token_ids(self.tokens, what)
        if len(self.tokens) <= sequence_length:
            raise InputError(
                f"The {what} has {len(self.tokens):,} tokens, too few for one window of {sequence_length} and its "
                "targets; give more data or a shorter sequence length."
            )
        (stride,) = self.tokens.strides
        self._windows = as_strided(
            self.tokens,
            shape=((len(self.tokens) - 1) // sequence_length, sequence_length + 1),
            strides=(sequence_length * stride, stride),
            writeable=False,
        )

    def __len__(self) -> int:
        return len(self._windows)

    def gather(self, indices: npt.NDArray[np.int64]) -> Batch:
        """(x, y), each int64 of shape (len(indices), sequence_length)."""
        windows = self._windows[indices]
        return windows[:, :-1].astype(np.int64), windows[:, 1:].astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """sha256 over type, length and content."""
        digest = hashlib.sha256(f"tokens {self.tokens.dtype.str} {len(self.tokens)}\n".encode())
        for chunk in _chunks(self.tokens):
            digest.update(np.ascontiguousarray(chunk).data)
        return digest.hexdigest()

    @cached_property
    def vocabulary(self) -> int:
        """Largest token id + 1: the least number of embedding rows a model needs."""
        return largest_id(self.tokens) + 1


def largest_id(tokens: npt.NDArray[Any]) -> int:
    """The largest of a non-empty array of ids, read in chunks."""
    return max(int(chunk.max()) for chunk in _chunks(tokens))


def _require_token_ids(tokens: npt.NDArray[Any], what: str) -> None:
    if tokens.dtype == object:
        raise InputError(f"The {what} is an array of Python objects; give an array of whole numbers (token ids).")
    if tokens.ndim != 1:
        raise InputError(
            f"The {what} is an array of shape {tokens.shape}; token ids come in one dimension (array.reshape(-1))."
        )
    if not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(f"The {what} holds {tokens.dtype} values; token ids are whole numbers: array.astype('int32').")
    if np.issubdtype(tokens.dtype, np.signedinteger) and len(tokens):
        smallest = min(int(chunk.min()) for chunk in _chunks(tokens))
        if smallest < 0:
            raise InputError(f"The {what} holds the token id {smallest}; ids start at 0 (remove padding marks first).")


def _chunks(tokens: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (tokens[start : start + _CHUNK] for start in range(0, len(tokens), _CHUNK))
