"""Memory of MLX's allocator and speed by batch size: limit, active, cache, peak, tokens/s.

    .venv-mlx/bin/python benchmarks/mlx_memory/run.py [--write] [--sizes 1,2,4] [--limit 8GiB]

Each batch size trains the decoder of the recipe tinystories (its --quick-test, or the whole one with --whole) in a
process of its own, through batchlab's Trainable. On a Mac this runs on Metal: watch where tokens/s fall while the peak
nears the recommended working set.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

from batchlab.core.format import format_bytes
from batchlab.core.frameworks import load_framework
from batchlab.core.parse import parse_memory_limit
from batchlab.core.protocols import OutOfMemory
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.core.task import Task
from batchlab.mlx_.models import Decoder, next_token_loss

RESULTS = Path(__file__).with_name("results.md")
WHOLE = {"vocabulary": 10_000, "sequence_length": 256, "d_model": 512, "layers": 4, "heads": 16, "d_ff": 1344}
SMALL = {"vocabulary": 256, "sequence_length": 64, "d_model": 64, "layers": 4, "heads": 2, "d_ff": 168}
WARM_UP, STEPS = 2, 5
HEADER = "| batch | limit | active | cache | peak | tokens/s, median of 5 steps | slowest, fastest step |"


def measure(size: int, shape: dict[str, int], limit: int | None) -> dict[str, float]:
    """Whole steps at this batch size in this process; without tokens/s where they need more than the limit."""
    framework = load_framework("mlx")
    device = DeviceSettings(name=framework.resolve_device("auto"), memory_limit=limit)
    framework.start(device, 0)
    task = Task(model=lambda: Decoder(**shape), loss=next_token_loss, train=None, valid=None)
    framework.bound_memory(device)
    trainable = framework.trainable(task, device, OptimizerSettings())
    tokens = np.random.default_rng(0).integers(0, shape["vocabulary"], (size, shape["sequence_length"] + 1))
    batch, seconds = (tokens[:, :-1], tokens[:, 1:]), []
    try:
        trainable.init(0)
        for _ in range(WARM_UP + STEPS):
            began = trainable.synchronize()
            trainable.accumulate(batch, 1 / batch[1].size)
            trainable.apply(1e-3)
            seconds.append(trainable.synchronize() - began)
    except OutOfMemory:
        seconds = []
    memory = {"active": mx.get_active_memory(), "cache": mx.get_cache_memory(), "peak": mx.get_peak_memory()}
    timed = seconds[WARM_UP:]
    return memory | {f"{of.__name__}_rate": batch[1].size / of(timed) for of in (statistics.median, min, max) if timed}


def row(size: int, found: dict[str, float], limit: int | None) -> str:
    """One line of the table."""
    memory = " | ".join(format_bytes(int(found[name])) for name in ("active", "cache", "peak"))
    bound = "none" if limit is None else format_bytes(limit)
    if "median_rate" not in found:
        return f"| {size} | {bound} | {memory} | above the limit | |"
    spread = f"{found['max_rate']:,.0f} … {found['min_rate']:,.0f}"
    return f"| {size} | {bound} | {memory} | {found['median_rate']:,.0f} | {spread} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,2,4,8,16,32,64,128")
    parser.add_argument("--limit", help="default: what batchlab takes as the device's memory on Metal, none elsewhere")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--write", action="store_true", help="write results.md")
    parser.add_argument("--one", action="store_true", help="measure the only size in this process, and print JSON")
    asked = parser.parse_args()
    shape, sizes = WHOLE if asked.whole else SMALL, [int(size) for size in asked.sizes.split(",")]
    framework = load_framework("mlx")
    device = DeviceSettings(name=framework.resolve_device("auto"))
    task = Task(model=dict, loss=dict, train=None, valid=None)
    limit = parse_memory_limit(asked.limit) if asked.limit else None
    if limit is None and device.name == "gpu":
        limit = framework.memory_bytes(task, device)
    if asked.one:
        print(json.dumps(measure(sizes[0], shape, limit)))
        return 0
    found = framework.environment(device)
    lines = [
        f"{found.framework}, Python {found.python}; {found.device} ({found.cores} cores), {platform.system()}; "
        f"decoder of tinystories{'' if asked.whole else ' --quick-test'}, float32, AdamW; one process per batch size, "
        f"{STEPS} steps after {WARM_UP}. Load average when it began: {os.getloadavg()[0]:.1f}.",
        "",
        HEADER,
        "|---" * 7 + "|",
    ]
    for size in sizes:
        options = ["--one", "--sizes", str(size), *(["--whole"] if asked.whole else [])]
        options += ["--limit", str(limit)] if limit is not None else []
        done = subprocess.run([sys.executable, __file__, *options], capture_output=True, text=True, check=False)
        if done.returncode:
            lines.append(f"| {size} | | | | | its process ended with {done.returncode} | |")
            break
        lines.append(row(size, json.loads(done.stdout), limit))
        print(lines[-1], flush=True)
    command = f".venv-mlx/bin/python benchmarks/mlx_memory/run.py {' '.join(sys.argv[1:])}".rstrip()
    text = "\n".join(["# Memory and speed of MLX by batch size", "", f"    {command}", "", *lines]) + "\n"
    if asked.write:
        RESULTS.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
