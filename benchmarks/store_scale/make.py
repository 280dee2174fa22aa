"""A study of any number of training runs on the simulated device, with any number of metric rows per run."""

from __future__ import annotations

import json
from pathlib import Path

from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.settings import merge
from batchlab.engines.inline import InlineEngine
from batchlab.study.progress import SilentView
from batchlab.study.study import run_study
from batchlab.study.task_source import resolve_task

SIZES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
LOWEST, HIGHEST = 0.1, 2.0
"""Learning rates between which a grid of any fineness lies; above about 2 runs diverge."""


def experiment(runs: int) -> Experiment:
    """A grid with about this many training runs, further seeds included."""
    rates = max(2, (runs - 10) // len(SIZES))
    ratio = (HIGHEST / LOWEST) ** (1 / (rates - 1))
    return build_experiment(
        merge(
            resolve_task("simulated"),
            {
                "model": {"samples": 19_200},
                "batch": {"global_batch_sizes": SIZES},
                "sweep": {"learning_rates": tuple(LOWEST * ratio**i for i in range(rates)), "max_extensions": 0},
                "budget": {"token_budget": 9_600},
            },
        )
    )


def make_study(folder: Path, runs: int, rows: int) -> None:
    """Run the study for real, without documents, then stretch every run's metrics to this many rows."""
    run_study(experiment(runs), folder, lambda path, workers: InlineEngine(path), SilentView(), write_documents=False)
    for metrics in sorted(folder.glob("runs/train-*/metrics.jsonl")):
        metrics.write_text("".join(f"{line}\n" for line in _stretched(metrics.read_text().splitlines(), rows)))


def _stretched(lines: list[str], rows: int) -> list[str]:
    """Rows of training repeated, evaluations kept, in order of their steps."""
    training = [line for line in lines if '"train_loss"' in line]
    others = [line for line in lines if '"train_loss"' not in line]
    wanted = rows - len(others)
    repeated = [training[i * len(training) // wanted] for i in range(wanted)]
    return sorted([*repeated, *others], key=lambda line: int(json.loads(line)["step"]))
