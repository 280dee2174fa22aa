"""All three estimators of the critical batch size, in a study of real text.

    python benchmarks/critical_study/run.py FOLDER [--data ../shared/data] > benchmarks/critical_study/results.md

A decoder of 139,584 parameters on tinyshakespeare, sequences of 32 bytes, six batch sizes. First the sweep, then
`critical --run`: two shorter budgets, and branches from two checkpoints. After an interruption, the same command
continues. One training run at a time, with one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import sys
from dataclasses import replace
from pathlib import Path

from batchlab.cli.app import run
from batchlab.report.critical import critical_lines
from batchlab.storage.store import Store
from batchlab.study.documents import read_findings
from batchlab.words.critical import cost_lines

SETTINGS = (
    *("--batch-sizes", "4,8,16,24,32,64", "--learning-rates", "3e-3,6e-3,1.2e-2", "--token-budget", "294912"),
    *("--search", "grid", "--seeds", "2", "--workers", "1", "--set", "device.threads=1", "--set", "sequence_length=32"),
    *("--set", "model.d_model=64", "--set", "model.layers=2", "--set", "model.heads=4", "--set", "model.d_ff=192"),
    *("--set", "evaluation.points=8", "--set", "optimizer.reference_batch_size=16"),
    *("--set", "evaluation.samples=512", "--set", "sweep.max_extensions=1", "--set", "diagnostics=off"),
)
DEVICES = (1, 4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / ".." / "shared" / "data")
    parser.add_argument("--only-show", action="store_true", help="train nothing; show the results in the folder")
    arguments = parser.parse_args()
    text = arguments.data / "tinyshakespeare" / "input.txt"
    if not arguments.only_show:
        if not text.exists():
            raise SystemExit(f"{text} does not exist. Give the folder that contains tinyshakespeare with --data.")
        with contextlib.redirect_stdout(sys.stderr):
            asked = ("study", "quickstart", "--out", str(arguments.folder), "--set", f"data.path={text.resolve()}")
            if code := run([*asked, *SETTINGS]):
                return code
            run(["critical", str(arguments.folder), "--run"])
    found = read_findings(Store.open(arguments.folder))
    machine = found.environment
    print("# Critical batch size of a small decoder on tinyshakespeare\n")
    print("    python benchmarks/critical_study/run.py FOLDER\n")
    if arguments.only_show:
        print("Trained by that command in one go, then printed again with --only-show.\n")
    if machine is not None:
        print(
            f"batchlab {machine.batchlab}, {machine.framework}, Python {machine.python}; {machine.processor} "
            f"({machine.cores} cores, 1 thread per run, one run at a time), {platform.system()}.\n"
            f"{found.task_info.parameter_count:,} parameters, {found.token_budget:,} tokens per run, "
            f"{len(found.runs)} runs of the sweep.\n"
        )
    for devices in DEVICES:
        print(f"## On {devices} device{'s' if devices > 1 else ''}\n")
        print("```")
        print("\n".join(critical_lines(replace(found, devices=devices))))
        print("```\n")
    seconds = sum(one.seconds for one in found.runs)
    print(f"The sweep: {len(found.runs)} runs, {sum(one.tokens for one in found.runs):,} tokens, {seconds:,.0f} s.")
    print("\n".join(cost_lines(found)))
    if found.throughput is not None and found.throughput.disturbed:
        busy = ", ".join(map(str, found.throughput.disturbed))
        print(
            f"\nSpeeds at batch {busy} and the seconds of training were measured while other programs\n"
            "used the processor. The times above are too long by an unknown factor."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
