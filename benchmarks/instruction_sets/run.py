"""Does the quickstart study give the same answer on processors with other instructions?

    python benchmarks/instruction_sets/run.py FOLDER --write

Runs `batchlab study quickstart` once with all instructions of this processor, and once with each older set that torch's
own kernels, oneDNN and MKL can be told to use, which changes the last bits of every sum. An interrupted study continues
with the same command. losses.json gets the losses of all runs, the measured speeds and what they were measured with.
results.md gets what they answer, and how often the answer is another where losses or speeds are changed.
tests/recipes/test_quickstart_answer.py judges losses.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from replay import LOSSES, Recorded, parse
from report import report

from batchlab.core.experiment import build_experiment
from batchlab.core.record import ThroughputResult, TrainResult
from batchlab.core.spec import ThroughputSpec, TrainSpec
from batchlab.storage.store import Store
from batchlab.study.task_source import resolve_task

RESULTS = Path(__file__).parent / "results.md"

HEAD = """# The quickstart study with other instructions

Written by `python benchmarks/instruction_sets/run.py FOLDER --write`; do not edit.
"""

SETS: dict[str, dict[str, str]] = {
    "all": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(SETS), help="e.g. all,sse4; the other sets keep what was recorded")
    parser.add_argument("--write", action="store_true", help="write losses.json and results.md; default: print both")
    parser.add_argument("--draws", type=int, default=200, help="changed losses per instruction set")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    arguments = parser.parse_args()
    kept = json.loads(LOSSES.read_text(encoding="utf-8"))
    recorded = {name: kept[name] for name in SETS if name in kept}
    for name in arguments.only.split(","):
        folder = arguments.folder / name
        seconds = study(folder, SETS[name])
        recorded[name] = {"cpu_seconds": round(seconds), **record(Store.open(folder))}
    losses = (
        "{\n"
        + ",\n".join(f"{json.dumps(name)}: {lines_of(recorded[name])}" for name in SETS if name in recorded)
        + "\n}\n"
    )
    studies = list(parse(losses).values())
    lines = report(studies, build_experiment(resolve_task("quickstart")), arguments.draws, arguments.seed)
    text = "\n".join([HEAD, machine(studies), "", *lines]) + "\n"
    if arguments.write:
        LOSSES.write_text(losses, encoding="utf-8")
        RESULTS.write_text(text, encoding="utf-8")
    else:
        print(losses, text, sep="\n")
    return 0


def machine(studies: Sequence[Recorded]) -> str:
    """Versions and processor of the first study; the others were made beside it."""
    one = studies[0].environment
    return (
        f"Python {one['python']}, {one['framework']}; {one['processor']} ({one['cores']} cores), one study per "
        "instruction set (n = 1), on a machine shared with other programs."
    )


def study(folder: Path, environment: dict[str, str]) -> float:
    """Run or continue the study; processor seconds of all its processes so far, those of interrupted ones included."""
    before = _children()
    command = [sys.executable, "-m", "batchlab", "study", "quickstart", "--out", str(folder)]
    ended = subprocess.run(command, env={**os.environ, **environment}, stdout=sys.stderr, check=False)
    spent = folder.with_suffix(".cpu_seconds")
    seconds = (float(spent.read_text()) if spent.exists() else 0.0) + _children() - before
    spent.write_text(f"{seconds:.1f}")
    ended.check_returncode()
    return seconds


def _children() -> float:
    """Processor seconds of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def record(store: Store) -> dict[str, Any]:
    """What the answer is drawn from: settings, machine, tokens per second by batch size, and one list per run."""
    records, experiment = store.records(), store.experiment
    environment = next(record.environment for _, record in records if record.environment is not None)
    return {
        "settings": {
            "model": experiment.model,
            "batch_sizes": experiment.batch.global_batch_sizes,
            "learning_rates": experiment.sweep.learning_rates,
            "token_budget": experiment.budget.token_budget,
            "sequence_length": experiment.sequence_length,
            "samples": experiment.evaluation.samples,
        },
        "environment": environment.model_dump(
            include={"framework", "python", "platform", "processor", "instruction_set", "cores"}
        ),
        "data_digest": next(spec.workload.data_digest for spec, _ in records if isinstance(spec, TrainSpec)),
        "tokens_per_second": {
            spec.layout.global_batch_size: round(record.result.tokens_per_second)
            for spec, record in records
            if isinstance(spec, ThroughputSpec) and isinstance(record.result, ThroughputResult)
        },
        "columns": ["batch_size", "learning_rate", "seed", "tokens", "outcome", "val_loss", "val_error", "clipped"],
        "runs": sorted(
            [
                spec.layout.global_batch_size,
                spec.learning_rate,
                spec.seed,
                spec.token_budget,
                str(record.outcome),
                record.result.val_loss,
                record.result.val_error,
                record.result.clipped_fraction,
            ]
            for spec, record in records
            if isinstance(spec, TrainSpec) and isinstance(record.result, TrainResult)
        ),
    }


def lines_of(values: dict[str, Any]) -> str:
    """JSON with one line per entry and per run."""
    runs = ",\n  ".join(map(json.dumps, values["runs"]))
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items() if key != "runs"]
    return "{" + ",\n ".join([*head, f'"runs": [\n  {runs}\n ]']) + "}"


if __name__ == "__main__":
    sys.exit(main())
