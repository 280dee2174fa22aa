"""What a CUDA card does with memory, precision and a resumed run, for `batchlab doctor --gpu`.

    python -m batchlab.torch_.card_test

prints one line of JSON per check when it has ended, in a process that the checks may leave full or broken. Numbers
only; `words.card_test` says what they mean. Nothing here names the machine, its user or a folder.
"""

from __future__ import annotations

import gc
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import batchlab
from batchlab.core.device_checks import Numbers, carried_out
from batchlab.core.experiment import Precision, TaskReference
from batchlab.core.nvml import driver_version
from batchlab.core.out_of_memory import as_out_of_memory
from batchlab.core.protocols import Batch, MemoryReading
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.core.task import Task
from batchlab.torch_ import memory
from batchlab.torch_.cuda_allocator import CONFIGURATION, MIB, Block, CachingAllocator
from batchlab.torch_.flops import measured_peak
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.models import Decoder, next_token_loss
from batchlab.torch_.trainable import TorchTrainable

CARD = torch.device("cuda:0")
FRAMEWORK = TorchFramework()
REQUESTS = 400
SECONDS = 1.0
"""Of training in each precision."""

BLOCK = 256 * MIB
BEYOND = 2 * BLOCK
"""Bytes above the free memory that are asked for to see whether the driver takes them from the host."""


class Model(NamedTuple):
    """A task with batches of any size."""

    name: str
    task: Task
    batch: Callable[[int], Batch]
    size: int


def models() -> tuple[Model, ...]:
    """A decoder, a convolutional network and an encoder with a padding mask."""
    length, vocabulary = 128, 2000
    ids = np.arange((length + 1) * 512) % vocabulary

    def tokens(size: int) -> Batch:
        drawn = np.random.default_rng(0).integers(0, vocabulary, (size, length + 1))
        return drawn[:, :-1], drawn[:, 1:]

    def labelled(*shape: int) -> Callable[[int], Batch]:
        def draw(size: int) -> Batch:
            drawn = np.random.default_rng(0)
            return drawn.standard_normal((size, *shape), np.float32), drawn.integers(0, 10, size)

        return draw

    pictures, vectors = labelled(3, 32, 32), labelled(96, 64)
    return (
        Model(
            "decoder",
            batchlab.task(
                model=lambda: Decoder(vocabulary, length, 128, 2, 4, 344),
                loss=next_token_loss,
                train=ids,
                valid=ids,
                sequence_length=length,
            ),
            tokens,
            16,
        ),
        Model("convolutions", _classifier(convolutions, pictures), pictures, 64),
        Model("masked encoder", _classifier(MaskedEncoder, vectors), vectors, 64),
    )


def _classifier(model: Callable[[], nn.Module], draw: Callable[[int], Batch]) -> Task:
    data = draw(8)
    return batchlab.task(model=model, loss=lambda m, x, y: cross_entropy(m(x), y), train=data, valid=data)


def convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for width in (3, 32, 32):
        layers += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class MaskedEncoder(nn.Module):
    """Two encoder layers over vectors, some of which are padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=x[..., 0] > 2).mean(1))  # type: ignore[no-any-return]


def trained(model: Model, device: DeviceSettings) -> TorchTrainable:
    """A trainable with parameters."""
    FRAMEWORK.start(device, 0)
    trainable = FRAMEWORK.trainable(model.task, device, OptimizerSettings())
    trainable.init(0)
    return trainable


def step(trainable: TorchTrainable, batch: Batch) -> torch.Tensor:
    """One optimizer step; its loss, on the card."""
    trainable.accumulate(batch, 1.0 / trainable.count(batch))
    loss: Any = trainable.apply(1e-3).loss
    return loss  # type: ignore[no-any-return]


def card() -> Numbers:
    """What the card is. Its uuid would tell one owner from another, so it is left out."""
    found = FRAMEWORK.environment(DeviceSettings(name="cuda:0"))
    free, total = torch.cuda.mem_get_info(CARD)
    return {
        "name": found.device,
        "memory_bytes": total,
        "free_bytes": free,
        "compute_capability": found.compute_capability,
        "driver": driver_version(),
        "cuda": found.cuda,
        "torch": torch.__version__,
        "batchlab": found.batchlab,
        "platform": found.platform,
        "max_clock_mhz": found.max_clock_mhz,
    }


def allocator() -> Numbers:
    """The model of the caching allocator beside torch's own, at every step of random requests."""
    memory.release(CARD)
    held_before = torch.cuda.memory_reserved(CARD)
    model, draw = CachingAllocator(), random.Random(0)
    held: list[tuple[torch.Tensor, Block]] = []
    differing = 0
    allocated_before = torch.cuda.memory_allocated(CARD)
    for _ in range(REQUESTS):
        size = round(2 ** draw.uniform(0, 24))
        block = model.allocate(size)
        assert block is not None
        held.append((torch.empty(size, dtype=torch.uint8, device=CARD), block))
        while held and draw.random() < len(held) / 32:
            tensor, block = held.pop(draw.randrange(len(held)))
            del tensor
            model.free(block)
        ours = model.allocated_bytes, model.reserved_bytes
        theirs = torch.cuda.memory_allocated(CARD) - allocated_before, torch.cuda.memory_reserved(CARD) - held_before
        differing += ours != theirs
    configured = any(os.environ.get(name) for name in CONFIGURATION)
    return {"steps": REQUESTS, "differing": differing, "configured": configured}


def traces() -> Numbers:
    """Relative errors of traced bytes for three models, allocated and reserved."""
    device = DeviceSettings(name="cuda:0")
    found: dict[str, dict[str, float] | None] = {}
    for model in models():
        _measured(model, device, 2)
        memory.bound(CARD, None)  # from here on without the workspaces that cuBLAS and cuDNN have taken and keep
        reading = _measured(model, device, model.size)
        spec = TraceSpec(
            workload=Workload(task=TaskReference(kind="module", target="here")),
            micro_batch_sizes=(model.size,),
            grad_accum_steps=1,
            device=device,
        )
        result = FRAMEWORK.trace(model.task, spec, model.batch(1), model.batch(1))
        if result.untraceable:
            found[model.name] = None
            continue
        [point] = result.points
        assert reading.peak_in_use_bytes is not None
        assert reading.peak_bytes is not None
        assert point.reserved_bytes is not None
        found[model.name] = {
            "allocated": point.peak.total_bytes / reading.peak_in_use_bytes - 1,
            "reserved": point.reserved_bytes / reading.peak_bytes - 1,
        }
    return {"errors": found}


def _measured(model: Model, device: DeviceSettings, size: int) -> MemoryReading:
    """Two steps and an evaluation."""
    trainable = trained(model, device)
    for _ in range(2):
        step(trainable, model.batch(size))
    trainable.evaluate(model.batch(size))
    reading = trainable.memory()
    del trainable
    gc.collect()
    return reading


def precisions() -> Numbers:
    """In each precision: operations per second of large products, tokens per second of a decoder, its last loss."""
    model = models()[0]
    found: dict[str, dict[str, float | None]] = {}
    names: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
    for name in names:
        trainable = trained(model, DeviceSettings(name="cuda:0", precision=name))
        batch = model.batch(model.size)
        for _ in range(3):
            step(trainable, batch)
        started, steps = trainable.synchronize(), 0
        while trainable.synchronize() - started < SECONDS:
            for _ in range(5):
                loss = step(trainable, batch)
            steps += 5
        seconds = trainable.synchronize() - started
        found[name] = {
            "tokens_per_second": steps * batch[0].size / seconds,
            "loss": float(loss) if math.isfinite(float(loss)) else None,
            "peak_flops": measured_peak(CARD, name, trainable.synchronize),
        }
        del trainable
    return {"precisions": found}


def resume() -> Numbers:
    """Three steps after a restart from saved state, beside the same three without one."""
    model, device = models()[0], DeviceSettings(name="cuda:0")
    batches = [model.batch(4 + number) for number in range(6)]
    first = trained(model, device)
    for batch in batches[:3]:
        step(first, batch)
    state = first.state()
    straight = [float(step(first, batch)) for batch in batches[3:]]
    second = trained(model, device)
    second.load(state)
    again = [float(step(second, batch)) for batch in batches[3:]]
    differences = [abs(one - other) / max(abs(one), 1e-12) for one, other in zip(straight, again, strict=True)]
    return {"steps": len(straight), "same_bits": straight == again, "largest_difference": max(differences)}


def limit() -> Numbers:
    """Whether a limit lets exactly its bytes be used."""
    asked = 64 * MIB
    bound = memory.bound(CARD, asked)
    fits, fits_more = _fits(asked), _fits(asked + 2 * MIB)
    torch.cuda.set_per_process_memory_fraction(1.0, CARD)
    return {"fits": fits, "fits_more": fits_more, "baseline_bytes": bound.baseline_bytes}


def _fits(size: int) -> bool:
    try:
        torch.empty(size, dtype=torch.uint8, device=CARD)
    except RuntimeError as error:
        if as_out_of_memory(error) is None:
            raise
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def out_of_memory() -> Numbers:
    """An allocation that cannot succeed, then a training step in the same process."""
    model = models()[0]
    memory.release(CARD)
    before, _ = torch.cuda.mem_get_info(CARD)
    try:
        torch.empty(2**50, dtype=torch.uint8, device=CARD)
        recognised = False
    except RuntimeError as error:
        recognised = as_out_of_memory(error) is not None
    trainable = trained(model, DeviceSettings(name="cuda:0"))
    loss = float(step(trainable, model.batch(4)))
    del trainable
    memory.release(CARD)
    after, _ = torch.cuda.mem_get_info(CARD)
    return {"recognised": recognised, "trains_again": math.isfinite(loss), "lost_bytes": max(0, before - after)}


def host_memory_fallback() -> Numbers:
    """Whether more can be allocated than is free. Windows and WSL may take the rest from the host, which is slow."""
    memory.release(CARD)
    free, _ = torch.cuda.mem_get_info(CARD)
    blocks: list[torch.Tensor] = []
    try:
        while len(blocks) * BLOCK < free + BEYOND:
            blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device=CARD))
        falls_back = True
    except RuntimeError as error:
        if as_out_of_memory(error) is None:
            raise
        falls_back = False
    taken = len(blocks) * BLOCK
    blocks.clear()
    memory.release(CARD)
    return {"falls_back": falls_back, "free_bytes": free, "allocated_bytes": taken}


def ranks() -> Numbers:
    """Whether processes on all cards of this machine add up what each of them has, and how long that takes."""
    cards = torch.cuda.device_count()
    if cards < 2:
        return {"cards": cards}
    here = (sys.executable, "-P", "-m")
    program = (*here, "batchlab.engines.rank_group", str(cards), *here, "batchlab.torch_.ranks_test", "cuda")
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RuntimeError(said[-1] if said else f"exit code {done.returncode}")
    found: Numbers = json.loads(done.stdout.splitlines()[-1])
    return found


CHECKS: dict[str, Callable[[], Numbers]] = {
    "card": card,
    "allocator": allocator,
    "traces": traces,
    "precisions": precisions,
    "resume": resume,
    "ranks": ranks,
    "limit": limit,
    "out_of_memory": out_of_memory,
    "host_memory_fallback": host_memory_fallback,
}
"""In this order: the last ones fill the card."""


def results() -> Iterator[Numbers]:
    """What each check found, or the error that ended it."""
    return carried_out(CHECKS)


if __name__ == "__main__":
    for result in results():
        print(json.dumps(result), flush=True)
