"""What every rank of test_ranks.py executes: the case named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import batchlab
from batchlab.analysis.calibration import calibration
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import Batch
from batchlab.core.ranks import Membership, Ranks
from batchlab.core.record import AllReduceResult, WorkerDevice, WorkersResult
from batchlab.core.spec import AllReduceSpec, DeviceSettings, OptimizerSettings, WorkersSpec, Workload
from batchlab.data.source import open_dataset
from batchlab.data.stream import SampleStream
from batchlab.engines.attempt import LiveRun
from batchlab.runs.all_reduce import time_sums
from batchlab.runs.follower import Follower
from batchlab.runs.workers import time_workers
from batchlab.testing.ranks import check_shared_sums
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.ranks import leave
from batchlab.torch_.trainable import TorchTrainable

SAMPLES, LENGTH, WORDS = 8, 12, 17


class Model(nn.Module):
    """Embedding, a block, a head; `unused` never gets a gradient, `late` only from batches with an even first token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.inner = nn.Linear(16, 32)
        self.head = nn.Linear(32, WORDS)
        self.unused = nn.Linear(3, 3)
        self.late = nn.Parameter(torch.ones(32))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.inner(self.embedding(x)))
        if (x[:, 0] % 2 == 0).any():
            hidden = torch.where((x[:, :1] % 2 == 0)[..., None], hidden * self.late, hidden)
        return self.head(hidden)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The sum, which is 0 for a share whose targets are all masked."""
    total = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum")
    return total, (y != -100).sum()


def targets(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> int:
    return int((y != -100).sum())


def batch_of(step: int) -> Batch:
    """Tokens and targets, about 40 % of them masked, unequally over the samples."""
    random = np.random.default_rng(step)
    x, y = (random.integers(0, WORDS, (SAMPLES, LENGTH)) for _ in range(2))
    y[random.random((SAMPLES, LENGTH)) < np.linspace(0.1, 0.8, SAMPLES)[:, None]] = -100
    return x, y


def trainable_of(dtype: torch.dtype, **settings: Any) -> TorchTrainable:
    data = batch_of(0)
    task = batchlab.task(model=lambda: Model().to(dtype), loss=loss, count=targets, train=data, valid=data)
    config = OptimizerConfig(grad_clip=0.3, **settings)
    return TorchTrainable(task, DeviceSettings(), OptimizerSettings(config=config))


LAYOUTS = {
    2: (((6, 2), 6), ((6, 2), 2), ((1, 7), 7)),
    4: (((2, 2, 2, 2), 2), ((3, 1, 3, 1), 2)),
}
"""By the number of ranks: the share of each, and the largest micro-batch."""


def splits(size: int) -> Iterator[list[tuple[int, ...]]]:
    """The micro-batches of every rank."""
    for shares, most in LAYOUTS[size]:
        layout = BatchLayout(global_batch_size=SAMPLES, micro_batch_size=most, data_parallel_size=size, shares=shares)
        yield [layout.micro_batch_sizes(rank) for rank in range(size)]


def train(ranks: Ranks) -> None:
    for shares in splits(ranks.size):
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
            check_shared_sums(lambda dtype=dtype: trainable_of(dtype), batch_of, shares, ranks, tolerance=tolerance)  # type: ignore[misc]


def exchange(ranks: Ranks) -> None:
    assert ranks.sum([1.0, ranks.rank]) == [ranks.size, sum(range(ranks.size))]
    assert ranks.gather(b"x" * ranks.rank) == [b"x" * rank for rank in range(ranks.size)]
    assert ranks.broadcast(b"from %d" % ranks.rank) == b"from 0"
    assert ranks.broadcast(b"") == b""


def dropout(ranks: Ranks) -> None:
    trainable = trainable_of(torch.float32)
    trainable.init(0)
    trainable.join(ranks)
    drawn = ranks.gather(torch.rand(4).numpy().tobytes())
    assert len(set(drawn)) == ranks.size
    state = trainable.rank_state()
    drawn = ranks.gather(torch.rand(4).numpy().tobytes())
    trainable.load_rank_state(state)
    assert ranks.gather(torch.rand(4).numpy().tobytes()) == drawn


def timings(ranks: Ranks) -> None:
    """What `batchlab calibrate` measures, with unequal shares."""
    workload = Workload(task=TaskReference(kind="recipe", target="simulated"))
    context = Follower(LiveRun(Path(), AllReduceSpec(workload=workload, data_parallel_size=2), print, lambda: False))
    device = WorkerDevice(name=f"cpu {ranks.rank}", memory_bytes=None)
    layout = BatchLayout(global_batch_size=8, micro_batch_size=4, data_parallel_size=2, shares=(6, 2))
    stream = SampleStream(open_dataset(batch_of(0), unit=Unit.TOKENS, sequence_length=LENGTH, what="data"), seed=0)
    workers = WorkersSpec(workload=workload, layout=layout, repeats=2, block_seconds=0.01)
    timed = time_workers(trainable_of(torch.float32), stream, workers, context, ranks).result
    assert isinstance(timed, WorkersResult)
    assert [worker.share for worker in timed.workers] == [6, 2]
    for worker in timed.workers:
        assert len(worker.step_seconds) == len(worker.held_step_seconds) == 2
        assert min(*worker.step_seconds, *worker.held_step_seconds, worker.forward_seconds) > 0

    trainable = trainable_of(torch.float32)
    sums = time_sums(trainable, AllReduceSpec(workload=workload, data_parallel_size=2), context, ranks, device).result
    assert isinstance(sums, AllReduceResult)
    assert [each.name for each in sums.devices] == ["cpu 0", "cpu 1"]
    assert sum(sums.parts) == 4 * (1 + sum(p.numel() + 1 for p in trainable.model.parameters()))
    sizes = [timing.size_bytes for timing in sums.sums]
    assert sizes == sorted(sizes)
    assert sum(sums.parts) in sizes
    found = calibration(layout, timed, sums, timed)
    assert found.step.seconds >= max(worker.step_seconds for worker in found.workers)


def all_that_ends_well(ranks: Ranks) -> None:
    for case in (exchange, dropout, train, *([timings] if ranks.size == 2 else [])):
        case(ranks)


def fails(ranks: Ranks) -> None:
    ranks.sum([0.0])
    if ranks.rank == 1:
        raise ValueError("only here")
    ranks.sum([0.0])


def runs_out(ranks: Ranks) -> None:
    ranks.sum([0.0])
    if ranks.rank == 1:
        raise torch.OutOfMemoryError("CUDA out of memory")
    ranks.sum([0.0])


if __name__ == "__main__":
    torch.set_num_threads(1)
    TorchFramework().on_ranks(Membership.of().size, DeviceSettings(), globals()[sys.argv[1]])
    leave()
