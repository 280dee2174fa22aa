"""Records which samples a Trainer takes in which order, and compares them with the order at batch size 1.

The order is that of the indices which the sampler gives to the data loader. Where it is the same as at batch size 1, it
is the same at every batch size with that seed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader
from transformers import Trainer

from batchlab.core.pairing import Pairing


class _Recording:
    """A sampler that remembers what it has given, one list for each time it was gone through."""

    def __init__(self, sampler: Any, epochs: list[array[int]]) -> None:
        self._sampler, self._epochs = sampler, epochs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[int]:
        given = array("q")
        self._epochs.append(given)
        for index in self._sampler:
            given.append(index)
            yield index


class SampleOrder:
    """The order of one training run. To be created before the Trainer trains."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._make_loader = trainer.get_train_dataloader
        self._epochs: list[array[int]] = []
        trainer.get_train_dataloader = self._recorded_loader

    def _recorded_loader(self) -> DataLoader[Any]:
        loader = self._make_loader()
        batches = loader.batch_sampler
        if hasattr(batches, "sampler"):
            batches.sampler = _Recording(batches.sampler, self._epochs)
        return loader

    def pairing(self, first_epoch: int, samples: int) -> Pairing:
        """What the recorded order shows. `samples`: seen from the beginning of `first_epoch`, where this process began.

        VERIFIED: equal to the order at batch size 1. DECLARED: equal to the order of another loader with the same
        settings. NONE: neither, or the order could not be recorded.
        """
        if not self._epochs:
            return Pairing.NONE
        own = self._trainer._train_batch_size
        for size, shown in ((1, Pairing.VERIFIED), (own, Pairing.DECLARED)):
            if self._equal_to(size, first_epoch, samples):
                return shown
        return Pairing.NONE

    def _equal_to(self, batch_size: int, first_epoch: int, samples: int) -> bool:
        own = self._trainer._train_batch_size
        self._trainer._train_batch_size = batch_size
        try:
            loader = self._make_loader()
        finally:
            self._trainer._train_batch_size = own
        left = samples
        for epoch, recorded in enumerate(self._epochs, first_epoch):
            loader.set_epoch(epoch)
            for position, index in enumerate(index for batch in loader.batch_sampler for index in batch):
                if position >= min(left, len(recorded)):
                    break
                if recorded[position] != index:
                    return False
            left -= min(left, len(recorded))
        return left == 0
