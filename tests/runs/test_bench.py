"""The batch that a check runs on: as large as memory allows, at most the samples asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchlab.core.batch import Unit
from batchlab.core.protocols import OutOfMemory
from batchlab.data.source import open_dataset
from batchlab.data.stream import SampleStream
from batchlab.runs.bench import set_up


def vectors(seed: int, samples: int = 64) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(samples, 6)).astype(np.float32)
    return x, (np.abs(x.sum(axis=1)) * 2).astype(np.int64) % 3


class Scarce:
    """A Trainable with room for `room` samples only."""

    sample_independent = True

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers = {"state": b"", "parameters": {}, "count": 1.0, "synchronize": 0.0}
        return lambda *args: answers.get(name)

    def accumulate(self, batch: tuple[np.ndarray, ...], weight: float) -> None:
        if len(batch[0]) > self.room:
            raise OutOfMemory


@pytest.mark.parametrize(("room", "size"), [(100, 8), (8, 8), (7, 4), (4, 4), (3, 2), (2, 2)])
def test_bench_shrinks_until_it_fits(room: int, size: int) -> None:
    stream = SampleStream(open_dataset(vectors(0), unit=Unit.SAMPLES, sequence_length=None, what="data"), seed=0)
    assert set_up(lambda: Scarce(room), stream, 8, "fp32").size == size


def test_not_even_two_samples_is_out_of_memory() -> None:
    stream = SampleStream(open_dataset(vectors(0), unit=Unit.SAMPLES, sequence_length=None, what="data"), seed=0)
    with pytest.raises(OutOfMemory):
        set_up(lambda: Scarce(1), stream, 8, "fp32")
