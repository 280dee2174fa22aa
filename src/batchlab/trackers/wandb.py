"""Weights & Biases, offline by default: run files below the study's folder, to be uploaded later.

    wandb sync STUDY/wandb/offline-run-*

With WANDB_MODE=online in the environment, they are uploaded while the study runs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from batchlab.core.protocols import Setting
from batchlab.core.record import MetricRow, Outcome, Record
from batchlab.trackers.values import results_of, scalars_of


class WandbTracker:
    """A Tracker writing `folder/wandb/`. Settings are the run's config, results its summary."""

    def __init__(self, folder: Path, study: str, *, online: bool = False) -> None:
        self._folder = folder
        self._study = study
        self._mode = "online" if online or os.environ.get("WANDB_MODE") == "online" else "offline"
        self._runs: dict[str, Any] = {}

    def begin(self, run: str, settings: Mapping[str, Setting]) -> None:
        """Start the run, replacing an earlier one; its name is the run_id, its id unique to the study."""
        identity = f"{self._study}-{run}"
        for earlier in (self._folder / "wandb").glob(f"offline-run-*-{identity}"):
            shutil.rmtree(earlier)
        self._folder.mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(
            mode=self._mode,
            silent=True,
            console="off",
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            x_disable_meta=True,
        )
        self._runs[run] = wandb.init(
            project=f"batchlab-{self._study}",
            name=run,
            id=identity,
            dir=str(self._folder),
            config=dict(settings),
            settings=quiet,
            reinit="create_new",
        )

    def row(self, run: str, row: MetricRow) -> None:
        """One logged value for each number."""
        self._runs[run].log(scalars_of(row), step=row.step)

    def end(self, run: str, record: Record) -> None:
        """The result as the run's summary."""
        ended = self._runs.pop(run)
        for name, value in results_of(record).items():
            ended.summary[f"result/{name}"] = value
        ended.finish(exit_code=0 if record.outcome is Outcome.COMPLETED else 1)

    def close(self) -> None:
        """Finish open runs, which the tracker then shows as failed. Its process writes files after `finish` returns."""
        for run in list(self._runs):
            self._runs.pop(run).finish(exit_code=1)
        wandb.teardown()
