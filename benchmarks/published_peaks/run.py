"""Published peaks of training steps on CUDA cards against the trace, which needs no card.

    python benchmarks/published_peaks/run.py        # results.md; some minutes of one core, 2 GB

Each case is a published figure whose configuration is known: model, batch, precision, optimizer, whether gradients are
alive during the forward pass. Bytes are counted, so n = 1.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from vit import IMAGE, ViT

import batchlab
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.record import TracePoint
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.torch_.framework import TorchFramework

HERE = Path(__file__).parent
LOGS = "https://github.com/rasbt/pytorch-memory-optim/blob/main/logs.md"


@dataclass(frozen=True)
class Case:
    """One published peak, in bytes that the CUDA allocator reserved."""

    script: str  # in the repository of LOGS, which also holds its log
    batch: int
    precision: Literal["fp32", "16-bit autocast", "bf16 weights"]
    optimizer: Literal["Adam", "SGD"]
    published_gb: float  # 10⁹ bytes


CASES = (
    Case("01_pytorch-vit.py", 64, "fp32", "Adam", 26.79),
    Case("02_mixed-precision.py", 64, "16-bit autocast", "Adam", 18.21),
    Case("03-bfloat16.py", 64, "bf16 weights", "Adam", 13.82),
    Case("04_lower-batchsize.py", 16, "bf16 weights", "Adam", 5.69),
    Case("05_gradient-accum.py", 4, "bf16 weights", "Adam", 3.91),
    Case("06_sgd-with-scheduler.py", 4, "bf16 weights", "SGD", 2.02),
)


def main() -> int:
    points = [traced(case) for case in CASES]
    (HERE / "results.md").write_text(page(points))
    return 0


def traced(case: Case) -> TracePoint:
    narrow = case.precision == "bf16 weights"
    images, labels = np.zeros((1, 3, IMAGE, IMAGE), np.float32), np.zeros(1, np.int64)
    adam = case.optimizer == "Adam"
    task = batchlab.task(
        model=lambda: ViT().bfloat16() if narrow else ViT(),
        loss=loss,
        train=(images, labels),
        valid=(images, labels),
        optimizer=lambda params, lr: torch.optim.Adam(params, lr=lr) if adam else torch.optim.SGD(params, lr=lr),
    )
    spec = TraceSpec(
        workload=Workload(task=TaskReference(kind="file", target="vit.py")),
        micro_batch_sizes=(case.batch,),
        grad_accum_steps=2,  # these scripts clear gradients after the forward pass, so they are alive during it
        evaluation_batch_size=case.batch,
        optimizer=OptimizerSettings(config=OptimizerConfig(name="task", grad_clip=None)),
        device=DeviceSettings(name="cuda:0", precision="bf16" if case.precision == "16-bit autocast" else "fp32"),
    )
    result = TorchFramework().trace(task, spec, (images, labels), (images, labels))
    if not result.points:
        raise SystemExit(f"{case.script}: {result.untraceable}")
    return result.points[0]


def loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(model(images).float(), labels)


def page(points: list[TracePoint]) -> str:
    rows = []
    for case, point in zip(CASES, points, strict=True):
        reserved = point.reserved_bytes or 0
        rows.append(
            f"| {case.script} | {case.batch} | {case.precision} | {case.optimizer} | {case.published_gb:.2f} | "
            f"{reserved / 1e9:.2f} ({reserved / 1e9 / case.published_gb - 1:+.1%}) | "
            f"{point.peak.total_bytes / 1e9:.2f} | {point.peak.phase} |"
        )
    return f"""# Published peaks against the trace

    python benchmarks/published_peaks/run.py

ViT-L/16 at 224 pixels, fine-tuned on one CUDA card of unknown kind with torch 2.1 and Lightning Fabric; published as
`torch.cuda.max_memory_reserved()` in {LOGS}. Traced with torch
{version("torch")} on {platform.machine()}, without a card. GB are 10⁹ bytes. Nothing here was tuned on these figures.

| script | batch | precision | optimizer | published, GB | traced, reserved | traced, in use | peak in |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

The published run of 02 is in fp16; the trace has bf16, of the same width. The scripts keep the output of one step until
the next, and validate at the same batch size. What is not traced: workspaces of cuDNN and cuBLAS, and that a CUDA
attention kernel keeps other tensors than that of a CPU.

Not predicted, because compilation is not traced: runs with `torch.compile`, such as the published
[comparison of a 1.6B model](https://forgather.readthedocs.io/en/latest/examples/tiny_experiments/peak_memory/) with and
without it, and GPT-2 124M in nanoGPT, whose published runs are compiled.
"""


if __name__ == "__main__":
    raise SystemExit(main())
