"""Datasets of independent samples from arrays, lists and other sequences."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from batchlab.core.errors import InputError
from batchlab.data import samples
from batchlab.data.samples import SampleDataset
from batchlab.testing import check_dataset

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20)


class Indexable:
    """A map-style dataset."""

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.n:
            raise IndexError(index)
        return X[index], int(Y[index])


def sources() -> dict[str, Any]:
    return {
        "arrays": (X, Y),
        "lists": (X.tolist(), Y.tolist()),
        "pairs": list(zip(X, Y, strict=True)),
        "indexable": Indexable(),
        "tensors": namedtuple("TensorDataset", "tensors")((X, Y)),
    }


@pytest.mark.parametrize("name", sources())
def test_every_form_gives_the_same_samples(name: str) -> None:
    data = SampleDataset(sources()[name])
    check_dataset(data)
    x, y = data.gather(np.array([4, 0, 19]))
    assert x.tolist() == X[[4, 0, 19]].tolist()
    assert y.tolist() == [4, 0, 19]


def test_torch_datasets_work_without_being_known() -> None:
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    part = torch.utils.data.Subset(tensors, range(5, 10))
    for data, first in ((SampleDataset(tensors), 0), (SampleDataset(part), 5)):
        check_dataset(data)
        assert data.gather(np.array([0]))[0].tolist() == [X[first].tolist()]
    assert SampleDataset(tensors).digest == SampleDataset((X, Y)).digest


def test_digest_is_of_the_content() -> None:
    changed = X.copy()
    changed[13, 1] += 1
    digests = {SampleDataset(s).digest for s in ((X, Y), (changed, Y), (X, Y + 1), (X[:-1], Y[:-1]))}
    assert len(digests) == 4
    assert SampleDataset((X.copy(), Y.copy())).digest in digests


def test_digest_of_large_data_reads_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "FULL_DIGEST_BYTES", 100)
    monkeypatch.setattr(samples, "_DIGEST_SAMPLES", 3)
    changed = X.copy()
    changed[5] += 1  # not among the samples 0, 9 and 19 that are hashed
    assert SampleDataset((X, Y)).digest == SampleDataset((changed, Y)).digest
    changed[19] += 1
    assert SampleDataset((X, Y)).digest != SampleDataset((changed, Y)).digest


class Augmented(Indexable):
    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return X[index] + np.random.default_rng().normal(), 0


class OnlyInputs(Indexable):
    def __getitem__(self, index: int) -> Any:
        return X[index]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ((X, Y[:-2]), "has 20 inputs and 18 targets"),
        ((X[:0], Y[:0]), "has no samples"),
        ((np.array([None] * 20), Y), "not Python objects"),
        (([[1, 2], [3]], [0, 1]), "cannot become an array"),
        ([(X[0], 1), (X[1, :2], 0)], r"inputs of different shapes, \(2,\) and \(3,\)"),
        (Augmented(), "different values when sample 0 is read twice"),
        (OnlyInputs(), "each sample must be"),
        (iter([1]), "an object with len"),
        (Indexable(0), "has no samples"),
    ],
)
def test_invalid_samples_are_rejected(source: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        SampleDataset(source, "held-out data")
