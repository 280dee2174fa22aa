"""The infinite stream of samples that a training run reads: a dataset in its sample order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from batchlab.core.protocols import Batch, Dataset
from batchlab.data.order import RandomPositions, SampleOrder
from batchlab.data.tokens import TokenDataset

# Number of indices computed at once; one block costs about as much as the overhead of ten batches.
_BLOCK = 4096


class SampleStream:
    """Step k at global batch size B takes samples [k·B, (k+1)·B) of the stream, however they are split.

    The first `first` samples are skipped, so that a run that continues another starts where that one ended.
    """

    def __init__(self, dataset: Dataset, seed: int, first: int = 0) -> None:
        self.dataset = dataset
        self.seed = seed
        self.first = first
        overlapping = isinstance(dataset, TokenDataset) and dataset.overlapping
        self.order = (RandomPositions if overlapping else SampleOrder)(len(dataset), seed)
        self.epoch_samples = epoch_samples(dataset)
        self._block_start = 0
        self._block: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def indices(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Dataset indices at stream positions [start, stop)."""
        offset = start - self._block_start
        if offset < 0 or offset + stop - start > len(self._block):
            self._block_start = start
            begin = self.first + start
            self._block = self.order.indices(begin, begin + max(_BLOCK, stop - start))
            offset = 0
        return self._block[offset : offset + stop - start]

    def batch(self, start: int, stop: int) -> Batch:
        """The samples at stream positions [start, stop), stacked."""
        return self.dataset.gather(self.indices(start, stop))

    def going_on_at(self, first: int) -> SampleStream:
        """The same order, starting at sample `first`."""
        return SampleStream(self.dataset, self.seed, first)

    def epochs(self, stop: int) -> float:
        """Epochs after `stop` samples. Above 1, samples repeat (at random positions they may repeat earlier)."""
        return (self.first + stop) / self.epoch_samples


def epoch_samples(dataset: Dataset) -> int:
    """Samples per epoch: all of them, or for overlapping windows the number of windows that would not overlap."""
    if isinstance(dataset, TokenDataset) and dataset.overlapping:
        return (len(dataset.tokens) - 1) // dataset.sequence_length
    return len(dataset)
