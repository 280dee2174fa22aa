"""Does the quickstart study give the same answer on processors with other instructions?

    python benchmarks/instruction_sets/run.py FOLDER > tests/recipes/quickstart_losses.json

Runs `batchlab study quickstart` once with all instructions of this processor, and once with each older set that torch's
own kernels, oneDNN and MKL can be told to use, which changes every sum. An interrupted study continues. Prints the
losses of all runs, the measured speeds and what they were measured with; tests/recipes/test_quickstart_answer.py draws
the answer from them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from batchlab.core.record import ThroughputResult, TrainResult
from batchlab.core.spec import ThroughputSpec, TrainSpec
from batchlab.storage.store import Store

SETS: dict[str, dict[str, str]] = {
    "all": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse4": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(SETS), help="e.g. all,sse4")
    arguments = parser.parse_args()
    found = {}
    for name in arguments.only.split(","):
        folder = arguments.folder / name
        command = [sys.executable, "-m", "batchlab", "study", "quickstart", "--out", str(folder)]
        subprocess.run(command, env={**os.environ, **SETS[name]}, stdout=sys.stderr, check=True)
        found[name] = recorded(Store.open(folder))
    lines = [f"{json.dumps(name)}: {lines_of(values)}" for name, values in found.items()]
    print("{\n" + ",\n".join(lines) + "\n}")
    return 0


def recorded(store: Store) -> dict[str, Any]:
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
        "columns": ["batch_size", "learning_rate", "seed", "tokens", "outcome", "val_loss", "val_error"],
        "runs": sorted(
            [
                spec.layout.global_batch_size,
                spec.learning_rate,
                spec.seed,
                spec.token_budget,
                str(record.outcome),
                record.result.val_loss,
                record.result.val_error,
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
