"""Worst-case batches of datasets with variable-size samples, which decide whether a micro-batch size fits.

A Dataset whose `gather` pads a batch to its longest sample, or concatenates samples of any size (graphs: nodes and
edges), has no fixed number of bytes per sample. In both cases the `count` samples with the most elements form the
largest batch: with padding, it contains the longest sample of the dataset; with concatenation, no other `count` samples
have more elements in total.

Arrays that were padded beforehand all have one shape, but a model that packs them needs memory for what is not padding.
Padding is then recognised as a run of equal rows at the end or the beginning of a sample. This is a guess, so it is
used only where memory was seen to depend on values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from batchlab.core.nested import leaves
from batchlab.core.protocols import Batch, Dataset
from batchlab.data.stream import SampleStream

PROBED_SAMPLES = 256
"""Evenly spaced samples examined first. If these all have the same size, every sample is assumed to have it."""

MAX_COUNTED_SAMPLES = 65_536
"""Larger datasets are subsampled at evenly spaced indices, so the very largest sample may be missed."""


def element_counts(dataset: Dataset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """(indices of the examined samples, total elements of each over all its arrays); None if all sizes are equal."""
    first = _evenly_spaced(len(dataset), PROBED_SAMPLES)
    counts = _counts(dataset, first)
    if (counts == counts[0]).all():
        return None
    if len(first) == len(dataset):
        return first, counts
    indices = _evenly_spaced(len(dataset), MAX_COUNTED_SAMPLES)
    return indices, _counts(dataset, indices)


def content_counts(dataset: Dataset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """As `element_counts`, without padding: rows that repeat the last (or first) row of a sample to its end."""
    indices = _evenly_spaced(len(dataset), MAX_COUNTED_SAMPLES)
    blocks = (indices[at : at + PROBED_SAMPLES] for at in range(0, len(indices), PROBED_SAMPLES))
    counts = np.concatenate([sum(_content(array) for array in leaves(dataset.gather(block))) for block in blocks])
    return None if (counts == counts[0]).all() else (indices, counts)


def largest_samples(dataset: Dataset, count: int, *, by_content: bool = False) -> npt.NDArray[np.int64] | None:
    """Indices of the `count` samples with the most elements, largest first; None if all sizes are equal.

    by_content: where all sizes are equal, those with the most elements that are not padding. With fewer than `count`
    samples, indices repeat.
    """
    found = element_counts(dataset) or (content_counts(dataset) if by_content else None)
    if found is None:
        return None
    indices, counts = found
    order = indices[np.argsort(-counts, kind="stable")]
    return order[np.arange(count) % len(order)]


def worst_batch(dataset: Dataset, count: int) -> Batch:
    """Gather the `count` largest samples, or the first `count` if all sizes are equal."""
    indices = largest_samples(dataset, count)
    return dataset.gather(np.arange(count) % len(dataset) if indices is None else indices)


class WorstStream(SampleStream):
    """A stream whose every batch is the worst case for its size; an ordinary stream if all sizes are equal.

    `worst_until`: from this position on, batches are drawn in the ordinary order, and the worst case is by content.
    For models whose memory depends on values, of which nobody knows the worst.
    """

    def __init__(self, dataset: Dataset, seed: int, worst_until: int | None = None) -> None:
        super().__init__(dataset, seed)
        self._worst_until = worst_until
        self._largest = largest_samples(dataset, len(dataset), by_content=worst_until is not None)

    @property
    def sizes_differ(self) -> bool:
        """Whether the samples vary in size."""
        return self._largest is not None

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The largest samples, up to `worst_until` regardless of position."""
        if self._largest is None or (self._worst_until is not None and start >= self._worst_until):
            return super().indices(start, stop)
        return self._largest[np.arange(stop - start) % len(self._largest)]


def _evenly_spaced(samples: int, at_most: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, samples - 1, min(samples, at_most)).astype(np.int64))


def _counts(dataset: Dataset, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    counts = [sum(array.size for array in leaves(dataset.gather(indices[at : at + 1]))) for at in range(len(indices))]
    return np.array(counts, np.int64)


def _content(array: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Elements of each sample of a stacked array that are no padding."""
    samples, length = len(array), array.shape[1] if array.ndim > 1 else 1
    if length < 2:
        return np.full(samples, array[0].size, np.int64)
    rows = array.reshape(samples, length, -1)
    after, before = rows != rows[:, -1:], rows != rows[:, :1]
    run_after = _run(after.any(2)[:, ::-1])
    run_before = _run(before.any(2))
    return (length - np.maximum(run_after, run_before) + 1) * rows.shape[2]


def _run(differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The number of leading False values of each row."""
    found: npt.NDArray[np.int64] = np.where(differs.any(1), differs.argmax(1), differs.shape[1])
    return found
