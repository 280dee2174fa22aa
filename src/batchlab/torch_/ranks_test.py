"""What each rank of `doctor`'s check of several cards executes: `python -m batchlab.torch_.ranks_test cuda`.

The ranks add up a tensor over the device's backend, which is NCCL on CUDA and gloo on a CPU. Rank 0 prints one line of
JSON: the number of cards, whether every sum was right, the bytes of the tensor, and the median of the seconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch

from batchlab.core.device_checks import Numbers
from batchlab.core.ranks import Membership
from batchlab.torch_.ranks import TorchRanks, leave, run_on_ranks

BYTES = 64 * 2**20
REPEATS = 10


def add_up(ranks: TorchRanks, device: torch.device) -> Numbers:
    """Sums over all ranks, the first of which also connects them and is not timed."""
    right, seconds = True, list[float]()
    for _ in range(1 + REPEATS):
        values = torch.full((BYTES // 4,), float(ranks.rank + 1), device=device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        ranks.sum([0.0])  # all begin together
        began = time.perf_counter()
        ranks.begin_sum(values)()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
        right &= bool((values == ranks.size * (ranks.size + 1) / 2).all())
    agreed = ranks.sum([float(right)]) == [float(ranks.size)]
    return {"cards": ranks.size, "right": agreed, "bytes": BYTES, "seconds": statistics.median(seconds[1:])}


def main() -> None:
    """Take part as the rank that the environment describes."""
    device = torch.device(sys.argv[1])
    found = run_on_ranks(Membership.of().size, device, lambda ranks: add_up(ranks, device))
    if Membership.of().rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
    leave()
