"""Predicted and measured memory of a training step on CUDA, for two groups of models.

The trace was developed on those of benchmarks/trace_accuracy; those of held_out.py were written before it was judged.

    python benchmarks/trace_cuda/run.py --write          # all models and settings; writes cases.json and results.md
    python benchmarks/trace_cuda/run.py --models gpt     # prints the table

Stopped, `--write` goes on where it was; delete cases.json to begin again.

Predicted: `TorchFramework.trace`, which needs no card. Measured: the counters of torch's caching allocator over two
optimizer steps and an evaluation on "cuda", above what the process held after a warm-up. It runs on a card, and on the
stand-in for CUDA, where the allocator is real and kernels do nothing:

    make test-cuda     # once, for .venv-cuda
    tests/cuda/run --python benchmarks/trace_cuda/run.py --write

On the stand-in cuDNN takes no workspace, recurrent networks of cuDNN do not run, and attention in bf16 is flash
attention. Without any CUDA device the script says so and exits.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "trace_accuracy"))
sys.path.insert(0, str(Path(__file__).parent))
from held_out import HELD_OUT
from workloads import WORKLOADS, Workload

import batchlab
from batchlab.core.errors import InputError
from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.protocols import OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.spec import Workload as WorkloadReference
from batchlab.core.task import Task
from batchlab.torch_ import memory
from batchlab.torch_.framework import TorchFramework

SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"precision": "bf16"},
    "checkpointing": {"memory_optimizations": ("checkpointing",)},
    "foreach optimizer": {},
    "fused optimizer": {"memory_optimizations": ("fused_optimizer",)},
    "chunked loss in bf16": {"precision": "bf16", "memory_optimizations": ("chunked_loss",)},
}
OWN_OPTIMIZER = ("foreach optimizer", "fused optimizer")
"""With a task's own AdamW, which steps over lists of tensors unless it is told to be fused."""

GROUPS = {"developed on": WORKLOADS, "held out": HELD_OUT}
GOALS = "median at most 1 %, largest at most 5 % allocated and 8 % reserved"
RESULTS = Path(__file__).with_name("results.md")
CASES = Path(__file__).with_name("cases.json")
DEVICE = torch.device("cuda:0")


class Case(NamedTuple):
    """Bytes at one micro-batch size; `absent` says why there are none."""

    group: str
    model: str
    setting: str
    size: int
    allocated: int
    traced_allocated: int
    reserved: int
    traced_reserved: int
    absent: str = ""

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the traced bytes: allocated, reserved."""
        return self.traced_allocated / self.allocated - 1, self.traced_reserved / self.reserved - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="names that contain one of these, separated by commas")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--write", action="store_true", help="write results.md")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA device or the stand-in for one. Nothing was measured.")
        return 0
    known = [Case(*case) for case in json.loads(CASES.read_text())] if arguments.write and CASES.exists() else []
    done = {(case.model, case.setting): case for case in known}
    for group, workloads in GROUPS.items():
        for workload in workloads:
            if not any(part in workload.name for part in arguments.models.split(",")):
                continue
            for setting in arguments.settings.split(","):
                if (workload.name, setting) in done:
                    continue
                try:
                    case = measure(group, workload, setting)
                except (RuntimeError, InputError, OutOfMemory) as error:
                    why = " ".join(str(error).split())[:120]
                    case = Case(group, workload.name, setting, workload.sizes[-1], 0, 0, 0, 0, why)
                done[workload.name, setting] = case
                if arguments.write:
                    CASES.write_text("[\n" + ",\n".join(json.dumps(each) for each in done.values()) + "\n]\n")
    page = table([case for case in done.values() if not case.absent], [case for case in done.values() if case.absent])
    print(page)
    if arguments.write:
        RESULTS.write_text(page)
    return 0


def measure(group: str, workload: Workload, setting: str) -> Case:
    """The trace and the counters at the workload's largest size."""
    example, size = workload.batch(1), workload.sizes[-1]
    own = (lambda params, lr: torch.optim.AdamW(params, lr=lr)) if setting in OWN_OPTIMIZER else None
    task = batchlab.task(model=workload.model, loss=workload.loss, train=example, valid=example, optimizer=own)
    optimizer = OptimizerSettings(config=OptimizerConfig(name="task" if own else "adamw"))
    device = DeviceSettings(name="cuda:0", **SETTINGS[setting])
    steps(task, device, optimizer, workload.batch(2))
    memory.bound(DEVICE, None)
    measured = steps(task, device, optimizer, workload.batch(size))
    spec = TraceSpec(
        workload=WorkloadReference(task=TaskReference(kind="file", target=__file__)),
        micro_batch_sizes=(size,),
        grad_accum_steps=1,
        device=device,
        optimizer=optimizer,
    )
    result = TorchFramework().trace(task, spec, example, example)
    if result.untraceable:
        raise RuntimeError(result.untraceable)
    point = result.points[0]
    assert measured.peak_in_use_bytes is not None
    assert measured.peak_bytes is not None
    assert point.reserved_bytes is not None
    traced = max(phase.total_bytes for phase in point.phases)
    return Case(
        group,
        workload.name,
        setting,
        size,
        measured.peak_in_use_bytes,
        traced,
        measured.peak_bytes,
        point.reserved_bytes,
    )


def steps(task: Task, device: DeviceSettings, optimizer: OptimizerSettings, batch: Any) -> Any:
    """Counters after two steps and an evaluation, in an allocator that was emptied before."""
    framework = TorchFramework()
    gc.collect()
    framework.start(device, 0)
    trainable = framework.trainable(task, device, optimizer)
    trainable.init(0)
    for _ in range(2):
        trainable.accumulate(batch, 1.0 / trainable.count(batch))
        trainable.apply(1e-3)
    trainable.evaluate(batch)
    found = trainable.memory()
    del trainable
    memory.release(DEVICE)
    return found


def table(cases: list[Case], absent: list[Case]) -> str:
    """results.md"""
    name, major = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
    lines = [
        "# Predicted and measured memory on CUDA",
        "",
        f"`benchmarks/trace_cuda/run.py --write` on {name!r} (compute capability {major[0]}.{major[1]}), torch "
        f"{torch.__version__}. Error: predicted ÷ measured − 1. Goals: {GOALS}. Attention is memory-"
        "efficient attention in fp32 and flash attention in bf16, where a model's mask and dropout allow it.",
        "",
        "| models | setting | n | allocated: median error | largest | reserved: median error | largest | goals |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in GROUPS:
        for setting in SETTINGS:
            errors = [case.errors for case in cases if case.setting == setting and case.group == group]
            if errors:
                one, two = ([abs(pair[index]) for pair in errors] for index in (0, 1))
                figures = (statistics.median(one), max(one), statistics.median(two), max(two))
                shown = " | ".join(f"{100 * figure:.2f} %" for figure in figures)
                met = figures[0] <= 0.01 and figures[1] <= 0.05 and figures[3] <= 0.08
                lines.append(f"| {group} | {setting} | {len(errors)} | {shown} | {'met' if met else 'missed'} |")
    lines += [
        "",
        "| models | model | setting | micro-batch | allocated | error | reserved | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        allocated, reserved = (f"{100 * error:+.2f} %" for error in case.errors)
        mebibytes = f"{case.allocated / 2**20:.1f} MiB | {allocated} | {case.reserved / 2**20:.0f} MiB | {reserved}"
        lines.append(f"| {case.group} | {case.model} | {case.setting} | {case.size} | {mebibytes} |")
    if absent:
        lines += ["", "Not measured:", ""]
    for model in dict.fromkeys(case.model for case in absent):
        settings: dict[str, list[str]] = {}
        for case in absent:
            if case.model == model:
                settings.setdefault(case.absent.partition(". ")[0], []).append(case.setting)
        lines += [f"- {model} ({', '.join(names)}): {why}" for why, names in settings.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
