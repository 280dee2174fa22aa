"""Detects held-out data that also occurs in the training data, which invalidates its loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from batchlab.core.nested import leaves
from batchlab.core.protocols import Dataset
from batchlab.data.collated import CollatedDataset
from batchlab.data.tokens import TokenDataset

# Shorter passages recur by chance in any text.
_PASSAGE_TOKENS = 64
_SEARCHED_BYTES = 128 * 2**20
_SEARCHED_SAMPLES = 1 << 18
_SEARCHED_COLLATED = 1 << 14  # one call of the person's function each
_BLOCK_BYTES = 16 * 2**20


def contained_share(valid: Dataset, train: Dataset, limit: int = 64) -> float:
    """Fraction of up to `limit` evenly spaced held-out samples whose content occurs verbatim in the training data.

    For token windows, a passage of at least 64 tokens from the window's start is searched at every position of the
    training tokens. Other samples are compared by x (all of a dict), bit for bit. Beyond 128 MiB (or 262,144 samples,
    16,384 with a collate function) of training data only evenly spaced parts are searched, and the result is then a
    lower bound. Identical data gives 1.
    """
    chosen = np.unique(np.linspace(0, len(valid) - 1, min(limit, len(valid))).astype(np.int64))
    if isinstance(valid, TokenDataset) and isinstance(train, TokenDataset):
        return _contained_passages(valid, train, chosen)
    wanted = list(_inputs(valid, chosen))
    found = _inputs_found(set(wanted), train)
    return sum(content in found for content in wanted) / len(wanted)


def _contained_passages(valid: TokenDataset, train: TokenDataset, chosen: npt.NDArray[np.int64]) -> float:
    length = min(max(valid.sequence_length + 1, _PASSAGE_TOKENS), len(valid.tokens))
    starts = np.unique(np.minimum(chosen * valid.sequence_length, len(valid.tokens) - length))
    dtype = train.tokens.dtype
    missing: dict[int, bytes] = {}
    for start in starts.tolist():
        passage = valid.tokens[start : start + length]
        if passage.max() <= np.iinfo(dtype).max:
            missing[start] = passage.astype(dtype).tobytes()
    searched = len(missing)
    total = len(train.tokens)
    block = max(_BLOCK_BYTES // dtype.itemsize, 2 * length)
    blocks = -(-total // block)
    allowed = max(_SEARCHED_BYTES // (block * dtype.itemsize), 1)
    for number in np.unique(np.linspace(0, blocks - 1, min(blocks, allowed)).astype(np.int64)).tolist():
        # Blocks overlap by one passage, so that no match across a boundary is missed.
        text = train.tokens[number * block : (number + 1) * block + length - 1].tobytes()
        missing = {s: passage for s, passage in missing.items() if not _occurs(passage, text, dtype.itemsize)}
    return (searched - len(missing)) / len(starts)


def _occurs(passage: bytes, text: bytes, itemsize: int) -> bool:
    """Whether the passage occurs in the text at a token boundary."""
    at = text.find(passage)
    while at % itemsize and at >= 0:
        at = text.find(passage, at + 1)
    return at >= 0


def _inputs_found(wanted: set[bytes], train: Dataset) -> set[bytes]:
    sample_bytes = max(sum(array.nbytes for array in leaves(train.gather(np.zeros(1, np.int64))[0])), 1)
    most = _SEARCHED_COLLATED if isinstance(train, CollatedDataset) else _SEARCHED_SAMPLES
    examined = min(len(train), most, max(_SEARCHED_BYTES // sample_bytes, 1))
    indices = np.unique(np.linspace(0, len(train) - 1, examined).astype(np.int64))
    block = max(_BLOCK_BYTES // sample_bytes, 1)
    found: set[bytes] = set()
    for start in range(0, len(indices), block):
        found.update(wanted.intersection(_inputs(train, indices[start : start + block])))
    return found


def _inputs(dataset: Dataset, indices: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """The content of each sample's x; one at a time where samples are padded to the longest of their batch."""
    if isinstance(dataset, CollatedDataset) and len(indices) > 1:
        for at in range(len(indices)):
            yield from _inputs(dataset, indices[at : at + 1])
        return
    arrays = list(leaves(dataset.gather(indices)[0]))
    for at in range(len(indices)):
        yield b"".join(array[at].tobytes() for array in arrays)
