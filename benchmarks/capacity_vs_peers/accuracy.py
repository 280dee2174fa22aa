"""batchlab's answer on every model of models.py against the true size: how exact, and at what cost?

    python benchmarks/capacity_vs_peers/accuracy.py --half development
    python benchmarks/capacity_vs_peers/accuracy.py --half "held out"

Writes accuracy.json, one entry per model, and accuracy.md. A model that has an entry is not run again; `--models
gan,moe` runs some again. glibc's allocator is fixed as in the other benchmarks of this folder (run.py); with
`--own-allocator` workers have batchlab's own settings of it, and own_allocator.json and own_allocator.md are written.

The answer is that of a study up to its capacity stage, as `batchlab capacity` runs it, but without headroom. The truth
comes from TRUTHS searches per model, each with a fork server of its own, whose probes are batchlab's: the same
processes, warm-up and baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accuracy_table import write_table
from models import MODELS, Model
from ours import read_probes, sources
from run import ENVIRONMENT
from truth import largest

from batchlab.core.errors import BatchlabError
from batchlab.core.experiment import build_experiment
from batchlab.core.protocols import Engine, Finished
from batchlab.core.record import Outcome
from batchlab.core.settings import merge
from batchlab.core.spec import SPEC, CapacitySpec
from batchlab.engines.local import LocalEngine
from batchlab.study.engines import engine_factory
from batchlab.study.progress import open_view
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task
from batchlab.words.capacity import capacity_lines

HERE = Path(__file__).parent
TRUTHS, DRAWS = 3, 40
"""Searches that the truth of a model comes from, and batches of each probe where memory depends on values."""

COARSE = 0.1
"""Forty steps at a size take long, so that where memory depends on values the truth comes from one search, and may be
this share too small."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="", help="development, or held out (default: both)")
    parser.add_argument("--models", default="", help="names separated by commas, which are run again")
    parser.add_argument("--no-truth", action="store_true", help="print answers only, and keep nothing")
    parser.add_argument("--own-allocator", action="store_true", help="leave glibc's settings to batchlab")
    arguments = parser.parse_args()
    results = HERE / ("own_allocator.json" if arguments.own_allocator else "accuracy.json")
    if not arguments.own_allocator:
        os.environ.update(ENVIRONMENT)  # workers inherit it
    again = set(filter(None, arguments.models.split(",")))
    entries = json.loads(results.read_text()) if results.exists() else {}
    for model in MODELS:
        wanted = model.name in again if again else arguments.half in ("", model.half)
        if wanted and arguments.no_truth:
            with tempfile.TemporaryDirectory() as folder:
                print(model.name, json.dumps(ask(model, Path(folder) / "study"), indent=1), flush=True)
        elif wanted and (again or model.name not in entries):
            entries[model.name] = measure(model)
            results.write_text(json.dumps(entries, indent=1) + "\n")
            print(model.name, {name: entries[model.name][name] for name in ("found", "up_to", "truth")}, flush=True)
    if entries:
        write_table(entries, results.with_suffix(".md"), own_allocator=arguments.own_allocator)
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
    factory = engine_factory(experiment, begins=study)
    try:
        result = run_study(
            experiment,
            study,
            factory,
            open_view(True),
            until="capacity",
            write_documents=False,
        )
        error = result.failure
        if result.findings.memory is not None:
            said = capacity_lines(result.findings.memory)
    except BatchlabError as failure:
        error = str(failure)
    del factory  # ends its fork server, whose processor time counts
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
    """The largest size that fits, found TRUTHS times, with the settings of batchlab's own probes."""
    specs = [SPEC.validate_json(path.read_text()) for path in sorted(study.glob("runs/capacity-*/spec.json"))]
    spec = next(spec for spec in specs if isinstance(spec, CapacitySpec))
    steps = DRAWS if spec.draws else 3
    device = spec.device.model_copy(update={"memory_limit": model.limit})
    spec = spec.model_copy(update={"device": device, "steps": steps, "whole": True, "new_process": False})
    if spec.draws:
        return [_true_size(spec, guess, COARSE)]
    found: list[int] = []
    for _ in range(TRUTHS):
        found.append(_true_size(spec, found[-1] if found else guess, 0.0))
    return found


def _true_size(spec: CapacitySpec, guess: int, resolution: float) -> int:
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(Path(folder), 1)
        try:
            return largest(_fits(engine, spec), guess, resolution)
        finally:
            engine.close()


def _fits(engine: Engine, spec: CapacitySpec) -> Callable[[int], bool]:
    def fits(size: int) -> bool:
        engine.submit(spec.model_copy(update={"micro_batch_size": size, "evaluation_batch_size": size}), exclusive=True)
        while True:
            for event in engine.wait(1.0):
                if isinstance(event, Finished):
                    if event.record.outcome not in (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY):
                        raise SystemExit(f"size {size}: {event.record.outcome.value}, {event.record.reason}")
                    return event.record.outcome is Outcome.COMPLETED

    return fits


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
    raise SystemExit(main())
