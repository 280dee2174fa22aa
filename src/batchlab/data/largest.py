"""Worst-case batches of datasets with variable-size samples, which decide whether a micro-batch size fits.

A Dataset whose `gather` pads a batch to its longest sample, or concatenates samples of any size (graphs: nodes and
edges), has no fixed number of bytes per sample. In both cases the `count` samples with the most elements form the
largest batch: with padding, it contains the longest sample of the dataset; with concatenation, no other `count` samples
have more elements in total.
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


def largest_samples(dataset: Dataset, count: int) -> npt.NDArray[np.int64] | None:
    """Indices of the `count` samples with the most elements, largest first; None if all sizes are equal.

    With fewer than `count` samples, indices repeat.
    """
    found = element_counts(dataset)
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
    """A stream whose every batch is the worst case for its size; an ordinary stream if all sizes are equal."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        super().__init__(dataset, seed)
        self._largest = largest_samples(dataset, len(dataset))

    @property
    def sizes_differ(self) -> bool:
        """Whether the samples vary in size."""
        return self._largest is not None

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The largest samples, regardless of position."""
        if self._largest is None:
            return super().indices(start, stop)
        return self._largest[np.arange(stop - start) % len(self._largest)]


def _evenly_spaced(samples: int, at_most: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, samples - 1, min(samples, at_most)).astype(np.int64))


def _counts(dataset: Dataset, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    counts = [sum(array.size for array in leaves(dataset.gather(indices[at : at + 1]))) for at in range(len(indices))]
    return np.array(counts, np.int64)
