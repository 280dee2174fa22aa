"""Memory that saving and loading a checkpoint take, as multiples of the state's size.

python benchmarks/checkpoint_memory/run.py writes results.md. Each number is the peak of resident memory of a process of
its own, above what it held before. Large models are cheap here: one layer, one step, no data.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import batchlab
from batchlab.core.experiment import OptimizerConfig
from batchlab.core.protocols import Trainable
from batchlab.core.spec import DeviceSettings, OptimizerSettings
from batchlab.storage.checkpoint import load_checkpoint, save_checkpoint
from batchlab.torch_.framework import TorchFramework
from batchlab.torch_.memory import release, restart_peak
from batchlab.torch_.trainable import TorchTrainable

CPU = torch.device("cpu")
LAYERS, INPUTS = 8, 64
SIZES = (64, 256, 1024)
"""MiB of a whole state: parameters and both moments of Adam."""


def trainable(mebibytes: int) -> TorchTrainable:
    """A model whose state has this size."""
    outputs = mebibytes * 2**20 // (3 * 4 * LAYERS * (INPUTS + 1))
    batch = np.ones((1, INPUTS), np.float32)
    task = batchlab.task(
        model=lambda: nn.ModuleList(nn.Linear(INPUTS, outputs) for _ in range(LAYERS)),
        loss=lambda model, x: sum(layer(x).square().mean() for layer in model),
        train=batch,
        valid=batch,
    )
    made = TorchFramework().trainable(task, DeviceSettings(name="cpu"), OptimizerSettings(config=OptimizerConfig()))
    assert isinstance(made, TorchTrainable)
    return made


def step(made: Trainable) -> None:
    """One optimizer step, after which the optimizer has its state."""
    made.accumulate((np.ones((1, INPUTS), np.float32),), 1.0)
    made.apply(1e-3)


def held(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{field}:")[2].split()[0]) * 1024


def begin() -> int:
    """What is held now; the peak starts here."""
    release(CPU)
    restart_peak(CPU)
    return held("VmRSS")


def save(path: Path, mebibytes: int) -> tuple[int, int]:
    """Bytes that saving takes above the run, and that the run holds afterwards above the same."""
    made = trainable(mebibytes)
    made.init(0)
    step(made)
    before = begin()
    save_checkpoint(path, {"step": 1}, made.write_state)
    return held("VmHWM") - before, held("VmRSS") - before


def load(path: Path, mebibytes: int) -> tuple[int, int]:
    """Bytes that a new run takes until it can go on, and that it holds then."""
    return _load(path, mebibytes, whole=False)


def load_whole(path: Path, mebibytes: int) -> tuple[int, int]:
    """The same where all bytes of the state are read into memory first."""
    return _load(path, mebibytes, whole=True)


def _load(path: Path, mebibytes: int, *, whole: bool) -> tuple[int, int]:
    made = trainable(16)  # what the first one of a process takes is not the state's
    made.init(0)
    step(made)
    made.load(made.state())
    made = trainable(mebibytes)
    before = begin()
    made.init(0)
    found = load_checkpoint(path)
    assert found is not None, path
    state = found[1]
    made.read_state(io.BytesIO(state.read()) if whole else state)
    peak = held("VmHWM") - before
    release(CPU)
    return peak, held("VmRSS") - before


MEASUREMENTS = {"save": save, "load": load, "load_whole": load_whole}
NAMES = {
    "save": "saving, above the run itself",
    "load": "resuming: a new process's model, then its checkpoint",
    "load_whole": "the same, with the whole state read into memory first (as before)",
}


def measured(what: str, path: Path, mebibytes: int) -> dict[str, int]:
    """One measurement in a process of its own."""
    arguments = [sys.executable, __file__, "--measure", what, "--path", str(path), "--mebibytes", str(mebibytes)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def page(results: dict[tuple[str, int], list[dict[str, int]]], sizes: dict[int, int], repetitions: int) -> str:
    """results.md."""
    columns = " | ".join(f"state of {size / 2**20:,.0f} MiB" for size in sizes.values())
    lines = [
        "# Memory for a checkpoint",
        "",
        f"`python benchmarks/checkpoint_memory/run.py` on {platform.platform()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, CPU, {os.environ.get('OMP_NUM_THREADS', 'all')} thread(s). Resident memory of a "
        f"process at its peak, as a multiple of the checkpoint's size. AdamW, {LAYERS} equal layers. n = {repetitions} "
        "processes per entry; median [lowest, highest].",
        "",
        f"| | {columns} |",
        "|---|" + "---|" * len(sizes),
    ]
    for what, name in NAMES.items():
        for quantity in ("peak", "after") if what != "save" else ("peak",):
            entries = [[one[quantity] / size for one in results[what, asked]] for asked, size in sizes.items()]
            label = name if quantity == "peak" else "↳ what it holds then"
            lines.append(f"| {label} | " + " | ".join(spread(values) for values in entries) + " |")
    lines += [
        "",
        "A third of the state of AdamW is the model. While it resumes, a run holds the parameters that it was built",
        "with and those of the checkpoint: 1.33. The optimizer keeps the tensors that were read. Files in the page",
        "cache are not counted. A Trainer of transformers reads its own checkpoint folder, which was not measured.",
        "",
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Median [lowest, highest]."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def main() -> None:
    """Measure everything, or (--measure) one thing in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="MiB of a state")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--measure", choices=MEASUREMENTS)
    parser.add_argument("--path", type=Path)
    parser.add_argument("--mebibytes", type=int)
    arguments = parser.parse_args()
    if arguments.measure:
        peak, after = MEASUREMENTS[arguments.measure](arguments.path, arguments.mebibytes)
        print(json.dumps({"peak": peak, "after": after}))
        return
    results: dict[tuple[str, int], list[dict[str, int]]] = {}
    sizes: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        for mebibytes in map(int, arguments.sizes.split(",")):
            for _ in range(arguments.repetitions):
                for what in MEASUREMENTS:
                    results.setdefault((what, mebibytes), []).append(measured(what, path, mebibytes))
                    print(what, mebibytes, results[what, mebibytes][-1], file=sys.stderr)
            sizes[mebibytes] = path.stat().st_size
    text = page(results, sizes, arguments.repetitions)
    Path(__file__).with_name("results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
