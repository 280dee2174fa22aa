"""Published memory of sharded training against the prediction, which needs no card.

    python benchmarks/published_peaks/sharded.py        # sharded.md; a minute of one core

Bytes are counted, so n = 1.
"""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from llama import Llama
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import batchlab
from batchlab.analysis.capacity.sharded import InFlight, ModelStates, Sharding, in_flight, model_states
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.record import ParameterShape, PhasePeak, ShardingUnit, TraceResult
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.torch_.framework import TorchFramework

HERE = Path(__file__).parent
ZERO = "https://arxiv.org/abs/1910.02054"
TORCHTITAN = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
LENGTH, BATCH, GIB = 8192, 2, 2**30

ZERO_TABLE = {4: (41.3, 30.0), 16: (21.6, 7.5), 64: (16.6, 1.88), 256: (15.4, 0.47), 1024: (15.1, 0.12)}
"""Devices → GB of model states of 7.5 billion parameters with gradients and optimizer state shared, and with all:
table 1 of the ZeRO paper. All ten are 2Ψ + 14Ψ/N and 16Ψ/N of its section 5, rounded (tests/benchmarks); those of 64
devices (16.6 and 1.9) also stand in its figure 1, https://ar5iv.labs.arxiv.org/html/1910.02054."""


class Published(NamedTuple):
    """A peak of Llama 3.1 8B with FSDP2 on so many H100, in GiB; 8,192 tokens, batch 2, selective checkpointing."""

    devices: int
    gib: float
    how: str


PEAKS = (
    Published(8, 82.4, "FSDP"),
    Published(128, 67.0, "FSDP"),
    Published(8, 77.0, "FSDP + torch.compile"),
    Published(128, 62.0, "FSDP + torch.compile"),
)


def main() -> int:
    traced = trace_llama()
    if not traced.points:
        raise SystemExit(f"not traced: {traced.untraceable}")
    (HERE / "sharded.md").write_text(page(traced))
    return 0


def trace_llama() -> TraceResult:
    """Llama 3.1 8B in bf16, which is what is gathered and computed with; its shards are in fp32."""
    tokens = np.zeros((1, LENGTH), np.int64)
    task = batchlab.task(
        model=lambda: Llama().bfloat16(),
        loss=loss,
        train=(tokens, tokens),
        valid=(tokens, tokens),
        optimizer=lambda params, lr: torch.optim.AdamW(params, lr=lr, foreach=False),
    )
    spec = TraceSpec(
        workload=Workload(task=TaskReference(kind="file", target="llama.py")),
        micro_batch_sizes=(BATCH,),
        evaluation_batch_size=1,
        optimizer=OptimizerSettings(config=OptimizerConfig(name="task", grad_clip=1.0)),
        device=DeviceSettings(name="cuda:0"),
    )
    return TorchFramework().trace(task, spec, (tokens, tokens), (tokens, tokens))


def loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten(0, 1))


def sharded(traced: TraceResult, devices: int) -> tuple[ModelStates, InFlight, dict[str, int]]:
    """States, what is gathered, and the bytes of each phase of a step on one of the devices."""
    sharding = Sharding("fsdp", devices, gathered_bytes=2, reduced_bytes=4)
    units = tuple(in_fp32(unit) for unit in traced.units)
    elements = sum(math.prod(parameter.shape) for unit in units for parameter in unit.parameters)
    states, flight = model_states(units, sharding, 8 * elements), in_flight(units, sharding)

    def needed(phase: PhasePeak) -> int:
        gathered = {"forward": flight.forward, "backward": flight.backward}.get(phase.phase, 0)
        alive = phase.gradient_bytes / (2 * elements)
        return round(
            states.parameters
            + alive * states.gradients
            + states.optimizer
            + gathered
            + phase.activation_bytes
            + (phase.temporary_bytes if phase.phase != "optimizer" else 0)
        )

    phases = [phase for phase in traced.points[0].phases if phase.phase != "evaluation"]
    return states, flight, {phase.phase: needed(phase) for phase in phases}


def in_fp32(unit: ShardingUnit) -> ShardingUnit:
    parameters = tuple(parameter.model_copy(update={"element_bytes": 4}) for parameter in unit.parameters)
    return unit.model_copy(update={"parameters": parameters})


def page(traced: TraceResult) -> str:
    rows = []
    for published in PEAKS:
        states, flight, phases = sharded(traced, published.devices)
        peak = max(phases.values()) / GIB
        compiled = "compile" in published.how
        compared = "not predicted" if compiled else f"{peak:.1f} ({peak / published.gib - 1:+.1%})"
        rows.append(
            f"| {published.how} | {published.devices} | {published.gib:.1f} | {compared} | {states.total / GIB:.1f} | "
            f"{flight.backward / GIB:.1f} | {max(phases, key=phases.__getitem__)} |"
        )
    few, many = (sharded(traced, devices)[0].total / GIB for devices in (8, 128))
    saved = []
    for one, other in zip(PEAKS[::2], PEAKS[1::2], strict=True):
        less = one.gib - other.gib
        saved.append(f"| {one.how} | {less:.1f} | {few - many:.1f} ({(few - many) / less - 1:+.1%}) |")
    zero = []
    for devices, (partial, full) in ZERO_TABLE.items():
        unit = ShardingUnit(
            name="", parameters=(ParameterShape(shape=(7_500_000, 1000), element_bytes=2, trained=True),)
        )
        shared = model_states([unit], Sharding("fsdp", devices), 12 * 7_500_000_000).total / 1e9
        gathered = shared + 15.0
        zero.append(f"| {devices} | {partial:g} | {gathered:.2f} | {full:g} | {shared:.2f} |")
    machine = platform.machine()
    activations = max(phase.activation_bytes for phase in traced.points[0].phases) / GIB
    return f"""# Published memory of sharded training against the prediction

    python benchmarks/published_peaks/sharded.py

Nothing here was tuned on these figures, and nothing ran on several cards. torch {version("torch")} on {machine}.

## Llama 3.1 8B with FSDP2

Published: {TORCHTITAN}
(H100, 8,192 tokens, batch 2 per device, selective activation checkpointing; the most memory that CUDA's allocator
reserved). Predicted: bytes in use, from a trace of the model written again (llama.py: attention and every other matrix
product are kept, {activations:.1f} GiB of activations) and the formulas of `analysis/capacity/sharded.py` with shards
and reductions in fp32, gathered in bf16. GiB.

| | devices | published | predicted | states | gathered in backward | peak in |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

What 128 devices save over 8 depends on the states alone:

| | published | predicted |
|---|---|---|
{chr(10).join(saved)}

Compiled runs are not predicted, because compilation is not traced; what they save can be.

## Model states of 7.5 billion parameters

Published: table 1 of the ZeRO paper ({ZERO}), 2 + 2 + 12 bytes per parameter. GB. FSDP2
that does not reshard after forward keeps its shard besides the gathered parameters, which ZeRO's stage 2 does not.

| devices | gradients and optimizer state shared | FSDP2, not resharded | all shared | FSDP2 |
|---|---|---|---|---|
{chr(10).join(zero)}
"""


if __name__ == "__main__":
    raise SystemExit(main())
