"""What each of two processes of torchrun executes in test_observed_ranks.py: a person's script for data-parallel
training, whose samples are compared with those of one process that has all micro-batches."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import batchlab
from batchlab.torch_.ranks import leave

STEPS, SIZE = 6, 4


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1)).double()


def part(step: int, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng((step, index))
    return torch.from_numpy(random.normal(size=(SIZE, 5))), torch.from_numpy(random.normal(size=(SIZE, 1)))


def loop(trained: nn.Module, indices: list[int], sync: str = "") -> Any:
    """Trains on those of a step's micro-batches; sync: when gradients are averaged over the processes."""
    obs = batchlab.observe(trained, every=2)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
    for step in range(STEPS):
        for place, index in enumerate(indices):
            x, y = part(step, index)
            early = sync == "last" and place < len(indices) - 1
            with trained.no_sync() if early else nullcontext(), obs.micro_batch(tokens=len(x)):  # type: ignore[operator]
                (nn.functional.mse_loss(trained(x), y) / len(indices)).backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        obs.step()
    return obs


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for passes, sync in ((1, "last"), (2, "last"), (3, "always")):
        own = list(range(rank * passes, (rank + 1) * passes))
        found = loop(DistributedDataParallel(model()), own, sync).samples
        expected = loop(model(), list(range(size * passes))).samples
        assert len(found) == len(expected) == STEPS // 2
        for one, other in zip(found, expected, strict=True):
            assert one.micro_batch_sizes == other.micro_batch_sizes
            np.testing.assert_allclose(one.squared_norms, other.squared_norms, rtol=1e-9)
            np.testing.assert_allclose(one.mean_squared_norm, other.mean_squared_norm, rtol=1e-9)
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-12)
    summary = loop(DistributedDataParallel(model()), [rank]).summary()
    assert "noise scale" in summary, summary
    sharded = model()
    before = batchlab.observe(sharded, every=1)
    fully_shard(sharded)
    shards = loop(sharded, [rank])
    for obs in (shards, before):
        with obs.micro_batch(tokens=SIZE):
            nn.functional.mse_loss(sharded(part(0, rank)[0]), part(0, rank)[1]).backward()
        obs.step()
        assert "the model is sharded (FSDP)" in obs.summary(), obs.summary()
    assert shards.tokens_per_second is not None
    assert not shards.samples
    print("agreed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
    leave()
