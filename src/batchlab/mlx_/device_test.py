"""What MLX's device does with memory, precision and a resumed run, for `batchlab doctor --gpu`.

    python -m batchlab.mlx_.device_test

prints one line of JSON per check when it has ended, in a process that the checks may leave full or broken. Numbers
only; `words.mlx_test` says what they mean. Nothing here names the machine, its user or a folder.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from batchlab.core.device_checks import Numbers, carried_out
from batchlab.core.protocols import Batch, OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task
from batchlab.mlx_ import memory
from batchlab.mlx_.framework import MlxFramework
from batchlab.mlx_.models import Decoder, next_token_loss
from batchlab.mlx_.trainable import MlxTrainable

FRAMEWORK = MlxFramework()
NAME = FRAMEWORK.resolve_device("auto")
VOCABULARY, LENGTH = 2000, 128
TASK = Task(model=lambda: Decoder(VOCABULARY, LENGTH, 128, 2, 4, 344), loss=next_token_loss, train=None, valid=None)
SECONDS = 1.0
"""Of training in each precision."""

MIB = 2**20
LIMIT = 64 * MIB
BLOCK = 256 * MIB


def batch(size: int) -> Batch:
    """Random tokens and their successors."""
    drawn = np.random.default_rng(size).integers(0, VOCABULARY, (size, LENGTH + 1))
    return drawn[:, :-1], drawn[:, 1:]


def trained(precision: Literal["fp32", "bf16"] = "fp32") -> MlxTrainable:
    """A trainable with parameters."""
    device = DeviceSettings(name=NAME, precision=precision)
    FRAMEWORK.start(device, 0)
    trainable = FRAMEWORK.trainable(TASK, device, OptimizerSettings())
    trainable.init(0)
    return trainable


def step(trainable: MlxTrainable, samples: Batch) -> Any:
    """One optimizer step; its loss, on the device."""
    trainable.accumulate(samples, 1.0 / trainable.count(samples))
    return trainable.apply(1e-3).loss


def device() -> Numbers:
    """What the device is, and how much of the memory that it shares a run may use."""
    found = FRAMEWORK.environment(DeviceSettings(name=NAME))
    return {
        "name": found.device,
        "kind": NAME,
        "usable_bytes": found.device_memory_bytes,
        "recommended_bytes": memory.recommended_bytes(),
        "framework": found.framework,
        "batchlab": found.batchlab,
        "platform": found.platform,
    }


def precisions() -> Numbers:
    """In each precision: tokens per second of a decoder, and its last loss."""
    found = {}
    names: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    for name in names:
        trainable, samples = trained(name), batch(8)
        step(trainable, samples)
        started, steps = trainable.synchronize(), 0
        while trainable.synchronize() - started < SECONDS:
            loss = step(trainable, samples)
            steps += 1
        seconds, last = trainable.synchronize() - started, float(loss)
        found[name] = {
            "tokens_per_second": steps * samples[0].size / seconds,
            "loss": last if math.isfinite(last) else None,
        }
    return {"precisions": found}


def resume() -> Numbers:
    """Three steps after a restart from saved state, beside the same three without one."""
    batches = [batch(4 + number) for number in range(6)]
    first = trained()
    for samples in batches[:3]:
        step(first, samples)
    state = first.state()
    straight = [float(step(first, samples)) for samples in batches[3:]]
    second = trained()
    second.load(state)
    again = [float(step(second, samples)) for samples in batches[3:]]
    differences = [abs(one - other) / max(abs(one), 1e-12) for one, other in zip(straight, again, strict=True)]
    return {"steps": len(straight), "same_bits": straight == again, "largest_difference": max(differences)}


def limit() -> Numbers:
    """Whether a limit, which MLX itself does not enforce, lets nearly all its bytes be used and not 2 MiB more.

    Nearly, because an array of zeros is made from one zero, which has memory of its own.
    """
    before = mx.get_memory_limit()
    memory.bound(LIMIT)
    fits, fits_more = _fits(LIMIT - MIB), _fits(LIMIT + 2 * MIB)
    memory.bound(None)
    mx.set_memory_limit(before)
    return {"limit_bytes": LIMIT, "fits": fits, "fits_more": fits_more}


def _fits(size: int) -> bool:
    memory.restart_peak()
    mx.eval(mx.zeros((size,), mx.uint8))
    try:
        memory.require_within_limit()
    except OutOfMemory:
        return False
    finally:
        memory.release()
    return True


def working_set() -> Numbers:
    """Seconds to write a block while memory fills up to the recommended working set: at the start, and the slowest.

    None where nothing is recommended: a CPU would fill all memory.
    """
    recommended = memory.recommended_bytes()
    if recommended is None:
        return {"recommended_bytes": None}
    blocks: list[mx.array] = []
    seconds: list[float] = []
    while len(blocks) * BLOCK < recommended:
        started = time.perf_counter()
        blocks.append(mx.full((BLOCK,), 1, mx.uint8))
        mx.eval(blocks[-1])
        seconds.append(time.perf_counter() - started)
    blocks.clear()
    memory.release()
    slowest = max(range(1, len(seconds)), key=seconds.__getitem__)
    return {
        "recommended_bytes": recommended,
        "first_seconds": seconds[1],  # the first block also starts the device
        "slowest_seconds": seconds[slowest],
        "slowest_at_bytes": slowest * BLOCK,
    }


CHECKS: dict[str, Callable[[], Numbers]] = {
    "device": device,
    "precisions": precisions,
    "resume": resume,
    "limit": limit,
    "working_set": working_set,
}
"""In this order: the last one fills the memory."""


def results() -> Iterator[Numbers]:
    """What each check found, or the error that ended it."""
    return carried_out(CHECKS)


if __name__ == "__main__":
    for result in results():
        print(json.dumps(result), flush=True)
