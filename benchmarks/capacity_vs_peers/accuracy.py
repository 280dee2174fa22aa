"""batchlab's answer on every model of models.py against the true size: how exact, and at what cost?

    python benchmarks/capacity_vs_peers/accuracy.py --half development
    python benchmarks/capacity_vs_peers/accuracy.py --half "held out"

Writes accuracy.json, one entry per model, and accuracy.md. A model that has an entry is not run again; `--models
gan,moe` runs some again. The answer is that of a study up to its capacity stage, as `batchlab capacity` runs it, but no
headroom and no accumulation. To save the start of some ten processes per model, its workers are forks of this process
(forks.py), which starts again by itself with the environment and the fixed addresses of batchlab's workers. The truth
comes from TRUTHS fresh forks per model, with batchlab's own warm-up and baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accuracy_table import write_table
from forks import ForkEngine, true_size
from models import MODELS, Model
from ours import read_probes, sources

from batchlab.core.errors import BatchlabError
from batchlab.core.experiment import build_experiment
from batchlab.core.settings import merge
from batchlab.core.spec import SPEC, CapacitySpec
from batchlab.core.worker import WorkerCommand
from batchlab.engines.command import worker_command
from batchlab.study.progress import open_view
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task
from batchlab.words.capacity import capacity_lines

HERE = Path(__file__).parent
RESULTS = HERE / "accuracy.json"
TRUTHS, DRAWS = 3, 40
"""Processes that the truth of a model comes from, and batches in each where memory depends on values."""

COARSE = 0.1
"""Forty steps at a size take long, so that where memory depends on values the truth comes from one process, and may be
this share too small."""

STARTED = "BATCHLAB_BENCHMARK_STARTED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="", help="development, or held out (default: both)")
    parser.add_argument("--models", default="", help="names separated by commas, which are run again")
    parser.add_argument("--no-truth", action="store_true", help="print answers only, and keep nothing")
    arguments = parser.parse_args()
    again = set(filter(None, arguments.models.split(",")))
    warm_up()
    entries = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for model in MODELS:
        wanted = model.name in again if again else arguments.half in ("", model.half)
        if wanted and arguments.no_truth:
            with tempfile.TemporaryDirectory() as folder:
                print(model.name, json.dumps(ask(model, Path(folder) / "study"), indent=1), flush=True)
        elif wanted and (again or model.name not in entries):
            entries[model.name] = measure(model)
            RESULTS.write_text(json.dumps(entries, indent=1) + "\n")
            print(model.name, {name: entries[model.name][name] for name in ("found", "up_to", "truth")}, flush=True)
    if entries:
        write_table(entries, HERE / "accuracy.md")
    return 0


def measure(model: Model) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study"
        answer = ask(model, study)
        before = _children()
        truth = true_sizes(model, study, answer["found"] or 8) if answer["sizes"] else []
    return {
        **asdict(model),
        **answer,
        "truth": truth,
        "truth_processor": round(_children() - before, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "torch": version("torch"),
        "sources": sources(),
    }


def ask(model: Model, study: Path) -> dict[str, Any]:
    """What a study up to its capacity stage answers, and what it cost."""
    settings = {
        "device": {"memory_limit": model.limit, "headroom": "0", "threads": 1, "name": "cpu"},
        "batch": {"micro_batching": "off"},
    }
    experiment = build_experiment(merge(resolve_task(str(model.task_file)), settings))
    before, started = _children(), time.perf_counter()
    said, error = [], ""
    try:
        result = run_study(
            experiment,
            study,
            lambda folder, workers: ForkEngine(folder),
            open_view(True),
            until="capacity",
            write_documents=False,
        )
        error = result.failure
        if result.findings.memory is not None:
            said = capacity_lines(result.findings.memory)
    except BatchlabError as failure:
        error = str(failure)
    wall, processor = time.perf_counter() - started, _children() - before
    decisions = study / "decisions.json"
    decided = json.loads(decisions.read_text()).get("capacity", {}) if decisions.exists() else {}
    probes = read_probes(study)
    return {
        "found": decided.get("max_micro_batch_size"),
        "up_to": decided.get("up_to"),
        "sizes": [probe["size"] for probe in probes],
        "out_of_memory": sum(probe["outcome"] == "out_of_memory" for probe in probes),
        "baselines": [probe["baseline"] for probe in probes],
        "traced": _traced(study),
        "wall": round(wall, 1),
        "processor": round(processor, 1),
        "said": said,
        "error": error,
    }


def true_sizes(model: Model, study: Path, guess: int) -> list[int]:
    """The largest size that fits, once for each of TRUTHS processes, with the settings of batchlab's own probes."""
    specs = [SPEC.validate_json(path.read_text()) for path in sorted(study.glob("runs/capacity-*/spec.json"))]
    spec = next(spec for spec in specs if isinstance(spec, CapacitySpec))
    device = spec.device.model_copy(update={"memory_limit": model.limit})
    spec = spec.model_copy(update={"device": device, "steps": DRAWS if spec.draws else 3})
    if spec.draws:
        return [true_size(spec, guess, COARSE)]
    found: list[int] = []
    for _ in range(TRUTHS):
        found.append(true_size(spec, found[-1] if found else guess))
    return found


def warm_up() -> None:
    """Import here, once, what every worker would import by itself."""
    import torch

    import batchlab.torch_.trace

    assert batchlab.torch_.trace
    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    layer(torch.zeros(1, 2)).sum().backward()
    torch.optim.AdamW(layer.parameters()).step()


def start_again() -> None:
    """Replace this process by one with the environment and the addresses of a worker that measures memory."""
    spec = CapacitySpec.model_validate(
        {"workload": {"task": {"kind": "file", "target": "any.py"}}, "micro_batch_size": 1}
    )
    command = worker_command(WorkerCommand((sys.executable, *sys.argv)), Path(), spec, None)
    program = list(command.program[: command.program.index("--study")])
    os.execve(program[0], program, {**os.environ, **command.environment, STARTED: "1"})


def _traced(study: Path) -> str:
    """Whether sizes came from a trace, from steps that were run, or from probes alone."""
    results = [json.loads(path.read_text())["result"] or {} for path in study.glob("runs/trace-*/record.json")]
    points = [point for result in results for point in result.get("points", ())]
    if any(point.get("draw_bytes") for point in points):
        return "run"
    return "traced" if points else "no"


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if STARTED not in os.environ:
        start_again()
    raise SystemExit(main())
