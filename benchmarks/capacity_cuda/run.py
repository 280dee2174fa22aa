"""Predicted and measured memory, and the true largest micro-batch, on a CUDA device.

    python benchmarks/capacity_cuda/run.py                # without a CUDA device it says so and exits

Every workload of benchmarks/trace_accuracy runs under limits from 8 GiB up to the memory of the card. A limit below
the card's memory is torch's per-process fraction: a simulated smaller card, with this card's kernels and context. Each
row is one `batchlab capacity … --prove`, so the true largest size ran and one more sample did not. Beside it are the
prediction of the trace alone for the sizes that ran, and the size it would have chosen. Studies are kept in
studies/capacity_cuda, so an interrupted benchmark continues. Writes results.md.

`--device cpu --limits 0.2GiB --workloads lstm` runs the same steps without a CUDA device. On a CPU "allocated" is
resident memory and "reserved" is VmData, and the trace does not include what kernels allocate.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from table import Ran, Row, largest_within, page
from tasks import TASKS

from batchlab.core.experiment import OptimizerConfig, TaskReference
from batchlab.core.format import format_bytes
from batchlab.core.parse import parse_bytes
from batchlab.core.record import TracePoint
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec, Workload
from batchlab.data.largest import worst_batch
from batchlab.torch_.framework import TorchFramework

HERE = Path(__file__).parent
STUDIES = Path("studies/capacity_cuda")
LIMITS = "8GiB,16GiB,24GiB,40GiB,48GiB,80GiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limits", default=LIMITS)
    parser.add_argument("--workloads", default=",".join(TASKS), help="default all")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("This benchmark needs a CUDA device, and torch finds none. Nothing was measured.")
        return 0
    total = torch.cuda.get_device_properties(0).total_memory if arguments.device == "cuda" else None
    limits = [limit for limit in map(parse_bytes, arguments.limits.split(",")) if total is None or limit < total]
    rows, missing = [], []
    for name in arguments.workloads.split(","):
        for limit in limits:
            try:
                rows.append(measure(name, limit, arguments.device))
            except RuntimeError as error:
                missing.append(f"{name}, {format_bytes(limit)}: {error}")
    target = HERE / "results.md" if arguments.device == "cuda" else STUDIES / "results_cpu.md"
    target.write_text(page(rows, missing, _device(arguments.device), arguments.device))
    print(f"{target}: {len(rows)} rows, {len(missing)} without an answer")
    return 0


def measure(name: str, limit: int, device: str) -> Row:
    """The study's answer and its probes, each beside the trace.

    Raises:
        RuntimeError: batchlab has no answer.
    """
    study = STUDIES / f"{name}-{limit}-{device}"
    command = [sys.executable, "-m", "batchlab", "capacity", f"{HERE / 'tasks.py'}:{name}", "--out", str(study)]
    command += ["--memory-limit", str(limit), "--headroom", "0", "--prove", "--set", f"device.name={device}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    decided = _read(study / "decisions.json").get("capacity", {})
    if not decided.get("max_micro_batch_size"):
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or "no answer").splitlines()[-1])
    specs = [_read(path) for path in sorted((study / "runs").glob("capacity-*/spec.json"))]
    results = [_read(path)["result"] for path in sorted((study / "runs").glob("capacity-*/record.json"))]
    passed = [result for result in results if result["fits"]]
    sizes = tuple(sorted(result["micro_batch_size"] for result in passed))
    predicted = trace_of(name, sizes, specs[0])
    return Row(
        name,
        limit,
        decided["max_micro_batch_size"],
        decided["smallest_failed"] == decided["max_micro_batch_size"] + 1,
        largest_within(lambda size: needed(trace_of(name, (size,), specs[0])[size]), limit),
        tuple(
            Ran(
                size=result["micro_batch_size"],
                allocated=result["peak_in_use_bytes"],
                reserved=result["peak_bytes"],
                predicted_allocated=predicted[result["micro_batch_size"]].peak.total_bytes,
                predicted_reserved=needed(predicted[result["micro_batch_size"]]),
            )
            for result in sorted(passed, key=lambda result: result["micro_batch_size"])
        ),
    )


def trace_of(name: str, sizes: tuple[int, ...], probe: dict[str, Any]) -> dict[int, TracePoint]:
    """Memory of a step like the probe's at these sizes, from the trace alone."""
    task = TASKS[name]
    spec = TraceSpec(
        workload=Workload(task=TaskReference(kind="file", target=str(HERE / "tasks.py"), attribute=name)),
        micro_batch_sizes=sizes,
        grad_accum_steps=probe["grad_accum_steps"],
        evaluation_batch_size=probe["evaluation_batch_size"],
        optimizer=OptimizerSettings(config=OptimizerConfig.model_validate(probe["optimizer"]["config"])),
        device=DeviceSettings.model_validate({**probe["device"], "memory_limit": None}),
    )
    result = TorchFramework().trace(task, spec, worst_batch(task.train, 1), worst_batch(task.valid, 1))
    if result.untraceable:
        raise RuntimeError(result.untraceable)
    return {point.micro_batch_size: point for point in result.points}


def needed(point: TracePoint) -> int:
    """Bytes that a card must have: reserved bytes if the allocator was replayed."""
    return point.reserved_bytes or point.peak.total_bytes


def _device(device: str) -> str:
    return torch.cuda.get_device_name(0) if device == "cuda" else platform.processor() or platform.machine()


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return content


if __name__ == "__main__":
    raise SystemExit(main())
