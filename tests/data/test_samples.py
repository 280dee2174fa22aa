"""Datasets of independent samples from arrays, lists and other sequences."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from batchlab.core.errors import InputError
from batchlab.data import arrays
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


IDS = np.arange(40).reshape(20, 2)
ENTRIES = [
    {"input_ids": ids.tolist(), "meta": {"age": int(age)}, "labels": ids} for ids, age in zip(IDS, Y, strict=True)
]


class Entries(Indexable):
    def __getitem__(self, index: int) -> Any:
        return ENTRIES[index]


@pytest.mark.parametrize(
    "source",
    [ENTRIES, Entries(), {"input_ids": IDS, "meta": {"age": Y}, "labels": IDS}],
    ids=["list", "any", "columns"],
)
def test_dicts_become_one_dict_of_arrays(source: Any) -> None:
    data = SampleDataset(source)
    check_dataset(data)
    (batch,) = data.gather(np.array([4, 0]))
    assert list(batch) == ["input_ids", "meta", "labels"]
    assert batch["input_ids"].tolist() == batch["labels"].tolist() == [[8, 9], [0, 1]]
    assert batch["meta"]["age"].tolist() == [4, 0]
    assert data.digest == SampleDataset(ENTRIES).digest


def test_parts_of_a_tuple_may_be_nested() -> None:
    samples = [((row, {"age": n}), n, row[0]) for n, row in enumerate(X)]
    for data in (SampleDataset(samples), SampleDataset(tuple(samples))):
        check_dataset(data)
        (x, more), y, weight = data.gather(np.array([3, 1]))
        assert x.tolist() == X[[3, 1]].tolist()
        assert more["age"].tolist() == y.tolist() == [3, 1]
        assert weight.tolist() == X[[3, 1], 0].tolist()
    x, y = SampleDataset([((1, 2), 0), ((3, 4), 1)]).gather(np.array([1]))
    assert x.tolist() == [[3, 4]]  # a tuple of numbers is an array


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
    monkeypatch.setattr(arrays, "FULL_DIGEST_BYTES", 100)
    monkeypatch.setattr(arrays, "_DIGEST_SAMPLES", 3)
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
        ([{"a": 1}, {"b": 1}], "samples with a and samples with b"),
        ([{"a": [1]}, {"a": [1, 2]}], r"'a' of different shapes, \(1,\) and \(2,\); .*collate"),
        ([{"text": "some"}], "contains text in 'text'"),
        ({"a": X, "b": X[1:]}, "arrays of 19 and of 20 samples"),
        ([(1, 2), (1, 2, 3)], "samples of 2 and of 3 parts"),
        (iter([1]), "an object with len"),
        (Indexable(0), "has no samples"),
    ],
)
def test_invalid_samples_are_rejected(source: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        SampleDataset(source, "held-out data")
