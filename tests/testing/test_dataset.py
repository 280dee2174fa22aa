"""check_dataset rejects broken implementations; each violates one requirement on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from batchlab.core.protocols import Batch
from batchlab.simulated.problem import NoiseDataset
from batchlab.testing import check_dataset


class ReturnsSharedArrays(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        kept: dict[tuple[int, ...], Batch] = self.__dict__.setdefault("kept", {})
        return kept.setdefault(tuple(indices.tolist()), super().gather(indices))


class Sorts(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        return super().gather(np.sort(indices))


class WrapsAround(NoiseDataset):
    def gather(self, indices: np.ndarray) -> Batch:
        return super().gather(indices % len(self))


class ChangesDigest(NoiseDataset):
    @property
    def digest(self) -> str:
        return str(np.random.default_rng().integers(1 << 60))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (ReturnsSharedArrays, "must not change the dataset"),
        (Sorts, "in the order of the indices"),
        (WrapsAround, "must raise IndexError"),
        (ChangesDigest, "digest must not change"),
    ],
)
def test_broken_datasets_are_rejected(broken: type[NoiseDataset], says: str) -> None:
    table = np.arange(12.0).reshape(6, 2)
    check_dataset(NoiseDataset(table.copy()))
    with pytest.raises(AssertionError, match=says):
        check_dataset(broken(table.copy()))
