"""Two published memory tables beside the prediction of `batchlab capacity … --predict`, made without the cards.

    python benchmarks/capacity_prediction/run.py              # traces; writes traces.json and results.md
    python benchmarks/capacity_prediction/run.py --table      # only writes results.md, from traces.json

E1 (recipe `elman`): peak allocated GiB of nine batches on a card of 47.4 GiB, from ../shared/data/elman_memory.
TinyStories (recipe `tinystories`): hours of batch 128 and 256 on a card of 15.99 GiB, and the error message at 512.
Both are predicted with the command line, as a user would. In addition, the same models are traced as the authors of the
tables ran them. Nothing is trained. The recurrence is traced step by step, which takes a minute or more for each of a
dozen sizes of 512 bytes. E1 is therefore predicted and traced over 64 bytes first and compared per byte (except for
h_0, all memory in it is proportional to batch × time), and over 512 bytes at the end, unless --short is given. Traces
in traces.json are not repeated: delete it, and studies/capacity_prediction, to start over.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from page import page

from batchlab.core.experiment import OptimizerConfig, build_experiment
from batchlab.core.parse import parse_bytes
from batchlab.core.settings import merge
from batchlab.core.spec import DeviceSettings, OptimizerSettings, TraceSpec
from batchlab.core.task import Task
from batchlab.data.largest import worst_batch
from batchlab.runs.workload import load, workload_of
from batchlab.study.engines import engine_factory
from batchlab.study.open_study import open_study
from batchlab.study.progress import open_view
from batchlab.study.session import Session
from batchlab.study.stages.capacity import capacity_stage
from batchlab.study.stages.capacity_request import CapacityRequest
from batchlab.study.task_source import resolve_task
from batchlab.torch_.framework import TorchFramework

HERE = Path(__file__).parent
STUDIES = Path("studies/capacity_prediction")
TRACES = HERE / "traces.json"
PUBLISHED = HERE.parents[1] / ".." / "shared" / "data" / "elman_memory" / "memory_vs_batch.csv"

NAMED = {"batchlab", "framework", "python", "processor", "instruction_set"}

ADAMW = OptimizerConfig(name="adamw")
NOTHING_KEPT = OptimizerConfig(name="sgd", momentum=0.0, weight_decay=0.0, grad_clip=None)
"""A step that keeps no state and makes no copy: the peak of forward and backward alone."""


@dataclass(frozen=True)
class Case:
    """One way to run a recipe's model. passes: micro-batches per step; from two on, gradients outlive a backward."""

    recipe: str
    sizes: tuple[int, ...]
    precision: str
    optimizer: OptimizerConfig
    bf16_weights: bool = False
    passes: int = 2
    settings: dict[str, Any] = field(default_factory=dict)


SHORT = {"sequence_length": 64}
SIZES = (64, 192)


def elman(precision: str, optimizer: OptimizerConfig, weights: bool = False, **model: int) -> Case:
    """E1, or a smaller one, over short sequences."""
    return Case("elman", SIZES, precision, optimizer, weights, settings={**SHORT, "model": model})


CASES = {
    "E1, bf16 weights, no optimizer": elman("fp32", NOTHING_KEPT, weights=True),
    "E1, bf16 weights, AdamW": elman("fp32", ADAMW, weights=True),
    "E1, bf16 autocast, no optimizer": elman("bf16", NOTHING_KEPT),
    "E1, bf16 autocast, AdamW": elman("bf16", ADAMW),
    "one layer, bf16 weights": elman("fp32", NOTHING_KEPT, weights=True, depth=1),
    "one layer, bf16 autocast": elman("bf16", NOTHING_KEPT, depth=1),
    "TinyStories": Case("tinystories", (128, 256, 512), "fp32", ADAMW, passes=1),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only write results.md, from traces.json")
    parser.add_argument("--short", action="store_true", help="omit the sizes of 512 bytes")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help="memory_vs_batch.csv")
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments.short)
    published = arguments.published if arguments.published.is_file() else None
    (HERE / "results.md").write_text(page(json.loads(TRACES.read_text()), published), encoding="utf-8")
    return 0


def measure(short: bool) -> None:
    """All cases and commands; what is already in traces.json is not traced again."""
    found: dict[str, Any] = json.loads(TRACES.read_text()) if TRACES.exists() else {}
    todo: dict[str, Callable[[], Any]] = {
        "machine": lambda: TorchFramework().environment(DeviceSettings()).model_dump(include=NAMED),
        "capacity tinystories --predict 16GiB": lambda: asked("tinystories", "16GiB", {}),
        **{name: (lambda case=case: traced(case)) for name, case in CASES.items()},
        "capacity elman --predict 48GiB --set sequence_length=64": lambda: asked("elman", "48GiB", SHORT),
    }
    if not short:
        todo["capacity elman --predict 48GiB"] = lambda: asked("elman", "48GiB", {})
    for name, answer in todo.items():
        if name in found:
            continue
        begun = time.monotonic()
        found[name] = answer()
        TRACES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


def asked(recipe: str, card: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The command's answer. Its traces stay in studies/, so that an interrupted benchmark continues."""
    values = merge(resolve_task(recipe), {"device": {"silence_seconds": 7200.0}, **settings})
    experiment = build_experiment(values)
    make_engine = engine_factory(experiment)
    study = open_study(
        experiment, STUDIES / "-".join([recipe, *map(str, settings.values())]), make_engine, accept_edits=False
    )
    session = Session(study, make_engine, open_view(quiet=True))
    return capacity_stage(session, CapacityRequest(card_bytes=parse_bytes(card)), sample_independent=True).as_dict()


def traced(case: Case) -> list[dict[str, Any]]:
    """The peaks of every phase at each size."""
    experiment = build_experiment(merge(resolve_task(case.recipe), case.settings))
    workload = workload_of(experiment)
    with tempfile.TemporaryDirectory() as cache:
        loaded = load(workload, Path(cache))
        task = in_bf16(loaded.task) if case.bf16_weights else loaded.task
        spec = TraceSpec(
            workload=workload,
            micro_batch_sizes=case.sizes,
            grad_accum_steps=case.passes,
            optimizer=OptimizerSettings(config=case.optimizer),
            device=DeviceSettings(name="cuda:0", precision=case.precision),
        )
        result = TorchFramework().trace(task, spec, worst_batch(loaded.train, 1), worst_batch(loaded.valid, 1))
    if result.untraceable:
        raise RuntimeError(result.untraceable)
    return [point.model_dump(mode="json") for point in result.points]


def in_bf16(task: Task) -> Task:
    """The same task with two-byte parameters, and therefore gradients, activations and AdamW state."""
    return replace(task, model=lambda: task.model().to(torch.bfloat16))


if __name__ == "__main__":
    raise SystemExit(main())
