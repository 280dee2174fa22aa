"""One rank of a training run with torch's DistributedDataParallel over gloo, or a run alone: prints its peak of memory.

    rank.py RANK DEVICES RENDEZVOUS TASK_FILE SIZE WAY        WAY: alone, ddp, or views (gradient_as_bucket_view)

Started by run.py. Warmed up, bounded and measured as a probe is: three whole steps and an evaluation on the largest
batches, in VmData above what the process held after the warm-up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from batchlab.core.experiment import TaskReference
from batchlab.core.protocols import Batch
from batchlab.core.spec import Workload
from batchlab.data.largest import worst_batch
from batchlab.runs.workload import load
from batchlab.torch_ import memory
from batchlab.torch_.ranks import leave

STEPS, CLIP, LEARNING_RATE, WARMUP = 3, 1.0, 1e-3, 2
CPU = torch.device("cpu")


def main() -> None:
    rank, devices, rendezvous, file, size, way = sys.argv[1:]
    torch.set_num_threads(1)
    if way != "alone":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        distributed.init_process_group(
            "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(devices)
        )
    loaded = load(Workload(task=TaskReference(kind="file", target=file)), Path(rendezvous).parent)
    task = loaded.task

    def train(samples: int, steps: int) -> None:
        torch.manual_seed(0)
        model = task.model()
        assert isinstance(model, nn.Module)
        assert task.optimizer is not None
        optimizer = task.optimizer(model.parameters(), LEARNING_RATE)
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=way == "views") if way != "alone" else model
        x, y = tensors(worst_batch(loaded.train, samples))
        for _ in range(steps):
            task.loss(parallel, x, y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        model.eval()
        with torch.no_grad():
            task.loss(model, *tensors(worst_batch(loaded.valid, min(samples, len(loaded.valid)))))

    train(WARMUP, 2)
    memory.bound(CPU, None)
    train(int(size), STEPS)
    print(memory.read(CPU).peak_bytes)
    if way != "alone":
        distributed.barrier()
        distributed.destroy_process_group()


def tensors(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = (torch.from_numpy(part.copy()) for part in batch)
    return (x if x.is_floating_point() else x.long()), (y if y.is_floating_point() else y.long())


if __name__ == "__main__":
    main()
    leave()
