"""A study of any number of training runs on the simulated device, with any number of metric rows per run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from batchlab.core.experiment import Experiment, build_experiment
from batchlab.core.settings import merge
from batchlab.core.spec import TrainSpec
from batchlab.engines.inline import InlineEngine
from batchlab.storage.files import DiskFile, DiskFiles
from batchlab.storage.store import Store
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


class NoSyncFile(DiskFile):
    """Not waited for: the study of a benchmark need not survive a power cut."""

    def sync(self) -> None:
        """Return at once."""


class NoSync(DiskFiles):
    """The disk of this machine, without waiting for it."""

    def create(self, path: Path) -> DiskFile:
        """A new, empty file."""
        return NoSyncFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))

    def append(self, path: Path) -> DiskFile:
        """The file at `path` open for appending."""
        return NoSyncFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666))

    def sync_folder(self, path: Path) -> None:
        """Return at once."""


def make_study(folder: Path, runs: int, rows: int) -> None:
    """Run the study for real, without documents, then stretch every run's metrics to this many rows."""
    files = NoSync()
    run_study(
        experiment(runs),
        folder,
        lambda path, workers: InlineEngine(path, files=files),
        SilentView(),
        files=files,
        write_documents=False,
    )
    store = Store.open(folder, files)
    for spec, record in store.records():
        if isinstance(spec, TrainSpec):
            run = store.run(spec)
            if not run.try_lock():
                raise RuntimeError(f"{run.path} is locked")
            metrics = run.path / "metrics.jsonl"
            metrics.write_text("".join(f"{line}\n" for line in _stretched(metrics.read_text().splitlines(), rows)))
            run.finish(record)  # with the digest of these metrics
            run.unlock()


def _stretched(lines: list[str], rows: int) -> list[str]:
    """Rows of training repeated, evaluations kept, in order of their steps."""
    training = [line for line in lines if '"train_loss"' in line]
    others = [line for line in lines if '"train_loss"' not in line]
    wanted = rows - len(others)
    repeated = [training[i * len(training) // wanted] for i in range(wanted)]
    return sorted([*repeated, *others], key=lambda line: int(json.loads(line)["step"]))
