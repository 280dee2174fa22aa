"""Datasets of windows over one long sequence of token ids, usually memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from batchlab.core.errors import InputError
from batchlab.core.protocols import Batch

_CHUNK = 1 << 24  # number of elements read at once from a memory-mapped file


@dataclass(frozen=True, slots=True, eq=False)
class TokenSpan:
    """Consecutive token ids, with the digest and vocabulary if these are known without reading all ids."""

    ids: npt.NDArray[Any]
    digest: str | None = None
    vocabulary: int | None = None  # all ids are below this

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> TokenSpan:
        """The ids at [start, stop). If the digest of the whole is known, the digest of the part is derived from it."""
        digest = None
        if self.digest is not None:
            digest = hashlib.sha256(f"{self.digest} [{start}, {stop})".encode()).hexdigest()
        return TokenSpan(self.ids[start:stop], digest, self.vocabulary)

    def first(self, share: float) -> TokenSpan:
        """The first `share` of the ids, 0 to 1, rounded down; at 1 all of them with their own digest."""
        return self if share == 1 else self.part(0, int(share * len(self)))


class TokenDataset:
    """Windows of T + 1 tokens: x is the first T tokens, y is x shifted by one, both int64.

    Sample j starts at token j·T. Windows share only their boundary token, so no token is a target twice in an epoch.
    With `stride`, sample j starts at token j·stride: below T windows overlap, above it tokens between them are left
    out. With `overlapping`, sample j starts at token j, and `SampleStream` draws random positions. Raises InputError,
    which calls the data `what`, if the ids are not a 1-D array of non-negative integers, or if there are fewer than
    sequence_length + 1 of them.
    """

    def __init__(
        self,
        tokens: npt.NDArray[Any] | TokenSpan,
        sequence_length: int,
        what: str = "data",
        *,
        overlapping: bool = False,
        stride: int | None = None,
    ) -> None:
        self._span = tokens if isinstance(tokens, TokenSpan) else TokenSpan(tokens)
        # A plain array view of a memory map is indexed several times faster than np.memmap itself.
        self.tokens = np.asarray(self._span.ids)
        self.sequence_length = sequence_length
        self.overlapping = overlapping
        _require_token_ids(self.tokens, what)
        if len(self.tokens) <= sequence_length:
            raise InputError(
                f"The {what} has {len(self.tokens):,} tokens, too few for one window of {sequence_length} and its "
                "targets; use more data or a shorter sequence length."
            )
        (itemsize,) = self.tokens.strides
        step = 1 if overlapping else stride or sequence_length
        self._windows = as_strided(
            self.tokens,
            shape=((len(self.tokens) - 1 - sequence_length) // step + 1, sequence_length + 1),
            strides=(step * itemsize, itemsize),
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
        """The digest of the span if known, else sha256 of type, content and length."""
        if self._span.digest is not None:
            return self._span.digest
        digest = TokenDigest(self.tokens.dtype)
        for chunk in _chunks(self.tokens):
            digest.add(chunk)
        return digest.hexdigest()

    @cached_property
    def vocabulary(self) -> int:
        """The vocabulary of the span if known, else the largest id + 1."""
        return self._span.vocabulary or largest_id(self.tokens) + 1


class TokenDigest:
    """Incremental sha256 over the type, content and length of token ids."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._sha256 = hashlib.sha256(f"tokens {dtype.str}\n".encode())
        self._dtype = dtype
        self._tokens = 0

    def add(self, ids: npt.NDArray[Any]) -> None:
        """Append ids, converted to the digest's type."""
        self._sha256.update(np.ascontiguousarray(ids, self._dtype).data)
        self._tokens += len(ids)

    def hexdigest(self) -> str:
        """The digest of the ids added so far; more may follow."""
        ended = self._sha256.copy()
        ended.update(f"\n{self._tokens}".encode())
        return ended.hexdigest()


def largest_id(tokens: npt.NDArray[Any]) -> int:
    """The largest id of a non-empty array, computed in chunks."""
    return max(int(chunk.max()) for chunk in _chunks(tokens))


def _require_token_ids(tokens: npt.NDArray[Any], what: str) -> None:
    if tokens.dtype == object:
        raise InputError(f"The {what} is an array of Python objects; use an array of integers (token ids).")
    if tokens.ndim != 1:
        raise InputError(
            f"The {what} is an array of shape {tokens.shape}; token ids must be 1-D (use array.reshape(-1))."
        )
    if not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(
            f"The {what} contains {tokens.dtype} values; token ids must be integers (use array.astype('int32'))."
        )
    if np.issubdtype(tokens.dtype, np.signedinteger) and len(tokens):
        smallest = min(int(chunk.min()) for chunk in _chunks(tokens))
        if smallest < 0:
            raise InputError(
                f"The {what} contains the token id {smallest}; ids must not be negative (remove padding first)."
            )


def _chunks(tokens: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (tokens[start : start + _CHUNK] for start in range(0, len(tokens), _CHUNK))
