"""Samples that a person's own function makes into a batch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.data.collated import CollatedDataset
from batchlab.data.largest import worst_batch
from batchlab.data.overlap import contained_share
from batchlab.data.source import open_dataset
from batchlab.testing import check_dataset

DRAWN = itertools.count()
TEXTS = [{"input_ids": list(range(1, 2 + n % 5)), "labels": list(range(1, 2 + n % 5))} for n in range(20)]


def padded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad with 0, and labels with -100; takes entries out of the samples, as some collators do."""
    labels = [sample.pop("labels") for sample in samples]
    width = max(map(len, labels))
    ids = [sample["input_ids"] + [0] * (width - len(sample["input_ids"])) for sample in samples]
    return {
        "input_ids": np.array(ids),
        "labels": np.array([row + [-100] * (width - len(row)) for row in labels]),
    }


def test_batches_are_what_the_function_makes() -> None:
    data = CollatedDataset(TEXTS, padded)
    check_dataset(data)
    (batch,) = data.gather(np.array([0, 2]))
    assert batch["input_ids"].tolist() == [[1, 0, 0], [1, 2, 3]]
    assert batch["labels"].tolist() == [[1, -100, -100], [1, 2, 3]]
    assert data.digest != CollatedDataset(TEXTS[::-1], padded).digest


def test_the_worst_batch_holds_the_longest_samples() -> None:
    (batch,) = worst_batch(CollatedDataset(TEXTS, padded), 3)
    assert batch["input_ids"].shape == (3, 5)


def test_held_out_samples_are_found_whatever_their_padding() -> None:
    train = CollatedDataset(TEXTS[:5], padded)
    assert contained_share(CollatedDataset([TEXTS[1], TEXTS[4]], padded), train) == 1.0
    other = {"input_ids": [7, 7], "labels": [7, 7]}
    assert contained_share(CollatedDataset([TEXTS[1], other], padded), train) == 0.5


def test_a_list_is_a_tuple_of_parts() -> None:
    def default_collate(samples: list[Any]) -> list[Any]:
        return [np.stack(part) for part in zip(*samples, strict=True)]

    pairs = [(np.full(3, n), np.array(n)) for n in range(4)]
    x, y = CollatedDataset(pairs, default_collate).gather(np.array([1, 3]))
    assert x.shape == (2, 3)
    assert y.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("collate", "says"),
    [
        (lambda samples: np.zeros(len(samples)), "returned ndarray"),
        (lambda samples: {"x": np.zeros((1, 7))}, "the first axis must be the sample"),
        (lambda samples: {"text": ["a"] * len(samples)}, "contains text in 'text'"),
        (lambda samples: {"x": np.full(len(samples), next(DRAWN))}, "different values"),
    ],
)
def test_what_is_no_batch_is_refused(collate: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        CollatedDataset(TEXTS, collate)


def test_token_ids_need_no_collate() -> None:
    with pytest.raises(InputError, match="need no collate="):
        open_dataset(np.arange(99), unit=Unit.TOKENS, sequence_length=4, what="data", collate=padded)
    given = open_dataset(TEXTS, unit=Unit.SAMPLES, sequence_length=None, what="data", collate=padded)
    assert isinstance(given, CollatedDataset)
    with pytest.raises(InputError, match=r"1 tokens but sequence_length=4"):
        open_dataset(TEXTS, unit=Unit.TOKENS, sequence_length=4, what="data", collate=padded)
