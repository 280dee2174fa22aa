"""The largest samples of a dataset whose samples differ in size: what a micro-batch must fit by is the worst batch.

A Dataset whose `gather` pads a batch to its longest sample, or joins samples of any size end to end (graphs: nodes and
edges), has no fixed bytes per sample. The `count` samples with the most elements make the batch that needs most in both
cases: padded, its longest sample is the dataset's; joined, no other `count` samples have more elements together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from batchlab.core.protocols import Batch, Dataset
from batchlab.data.stream import SampleStream

LOOKED_AT_FIRST = 256
"""Evenly spaced samples; where all of these are of one size, all samples are taken to be."""

LOOKED_AT = 65_536
"""Of more samples than this, evenly spaced ones stand for all: the very largest may then be missed."""


def element_counts(dataset: Dataset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """(indices of the samples looked at, elements of each over all its arrays); None where sizes do not differ."""
    first = _evenly_spaced(len(dataset), LOOKED_AT_FIRST)
    counts = _counts(dataset, first)
    if (counts == counts[0]).all():
        return None
    if len(first) == len(dataset):
        return first, counts
    indices = _evenly_spaced(len(dataset), LOOKED_AT)
    return indices, _counts(dataset, indices)


def largest_samples(dataset: Dataset, count: int) -> npt.NDArray[np.int64] | None:
    """Indices of the `count` samples with the most elements, largest first; None where sizes do not differ.

    With fewer than `count` samples to choose from they are repeated.
    """
    found = element_counts(dataset)
    if found is None:
        return None
    indices, counts = found
    order = indices[np.argsort(-counts, kind="stable")]
    return order[np.arange(count) % len(order)]


def worst_batch(dataset: Dataset, count: int) -> Batch:
    """The `count` largest samples gathered; the first ones where sizes do not differ."""
    indices = largest_samples(dataset, count)
    return dataset.gather(np.arange(count) % len(dataset) if indices is None else indices)


class WorstStream(SampleStream):
    """A stream whose every batch is the worst of its size; an ordinary stream where sizes do not differ."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        super().__init__(dataset, seed)
        self._largest = largest_samples(dataset, len(dataset))

    @property
    def sizes_differ(self) -> bool:
        return self._largest is not None

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The largest samples, whatever the position."""
        if self._largest is None:
            return super().indices(start, stop)
        return self._largest[np.arange(stop - start) % len(self._largest)]


def _evenly_spaced(samples: int, at_most: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, samples - 1, min(samples, at_most)).astype(np.int64))


def _counts(dataset: Dataset, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    counts = [sum(part.size for part in dataset.gather(indices[at : at + 1])) for at in range(len(indices))]
    return np.array(counts, np.int64)
