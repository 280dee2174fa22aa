"""report, plan, status, mirror: what a study on disk says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from batchlab.core.batch import BatchLayout
    from batchlab.storage.store import Store


def report(folder: Path, /, *, devices: int = 1) -> int:
    """Write a study's report.html, report.md, tables and plan again from its records.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Data-parallel devices for which the time to a loss is shown.
    """
    from batchlab.core.batch import require_devices
    from batchlab.storage.store import Store
    from batchlab.study.study import write_documents

    require_devices(devices)
    store = Store.open(folder)
    findings = write_documents(store, partial=not store.decisions().complete, devices=devices)
    print(folder / "report.html")
    return 0 if findings.recommended else 1


def plan(
    folder: Path,
    /,
    *,
    devices: int = 1,
    batch_size: int | None = None,
    token_budget: str | None = None,
    parameters: str | None = None,
    objective: Literal["quality", "fastest", "soonest", "cheapest", "largest"] | None = None,
    target_loss: float | None = None,
    recheck: Annotated[bool, Parameter(negative=())] = False,
    format: Literal["json", "hf", "torchtitan", "nanochat", "torchrun"] = "json",
) -> int:
    """The training plan of a study, for a number of devices, in the spelling of a trainer.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Data-parallel devices; the global batch stays as it is, its layout is solved anew.
    batch_size
        Another global batch size than the recommended one, also one that was not measured.
    token_budget
        Another budget than the study's, e.g. 10B: batch and learning rate are extrapolated, and marked so.
    parameters
        Parameters of a wider model of the same family, e.g. 100M, to extrapolate to.
    objective
        Which of the batch sizes that are as good as the best: lowest loss (quality), least time for the budget
        (fastest, what is recommended), least time or least computation to a loss (soonest, cheapest), most samples a
        step (largest).
    target_loss
        The loss of soonest and cheapest; without it the highest that those as good end at.
    recheck
        First run 50 whole steps of the plan's layout on one device, where no training run had it.
    format
        Whose names to print.
    """
    from batchlab.analysis.extrapolation import Target
    from batchlab.analysis.recommendation import Objective
    from batchlab.core.errors import InputError
    from batchlab.core.parse import parse_count
    from batchlab.plan import format_plan, make_plan
    from batchlab.storage.store import Store
    from batchlab.study.study import read_findings

    target = Target(
        batch_size,
        parse_count(token_budget, "--token-budget") if token_budget else None,
        parse_count(parameters, "--parameters") if parameters else None,
    )
    if target_loss is not None and objective is None:
        raise InputError("A target loss goes with --objective soonest or --objective cheapest; give one of them.")
    serves = Objective(objective, target_loss) if objective else None
    store = Store.open(folder)
    made = make_plan(read_findings(store, partial=False), devices, target, serves)
    if recheck:
        _recheck(store, made.batch_configuration.layout)
        made = make_plan(read_findings(store, partial=False), devices, target, serves)
    print(format_plan(made, format))
    for warning in made.warnings:
        print(f"batchlab: {warning}", file=sys.stderr)
    if format == "hf":
        for note in made.notes:
            print(f"batchlab: {note}", file=sys.stderr)
    return 0


def _recheck(store: Store, layout: BatchLayout) -> None:
    from batchlab.cli.commands.running import stop_on_sigterm
    from batchlab.study.open_study import engine_factory
    from batchlab.study.progress import open_view
    from batchlab.study.study import recheck

    view = open_view(quiet=True)  # standard output is the plan's
    stop_on_sigterm()
    try:
        recheck(store.path, layout, engine_factory(store.experiment), view)
    finally:
        view.close()


def status(folder: Path, /) -> int:
    """How far a study is: finished, failed and unfinished runs."""
    from batchlab.storage.store import Store
    from batchlab.study.progress import status_lines

    store = Store.open(folder)
    for line in status_lines(store.experiment, store.records(), store.unfinished(), store.decisions().budget):
        print(line)
    return 0


def mirror(folder: Path, /, *, to: str, online: Annotated[bool, Parameter(negative="--offline")] = False) -> int:
    """Replay a study's training runs into TensorBoard or Weights & Biases, from its records and metrics.

    Parameters
    ----------
    folder
        A study's folder.
    to
        tensorboard or wandb.
    online
        Send to the service as well, where it is one; else only files below the study are written.
    """
    from batchlab.storage.store import Store
    from batchlab.trackers import open_tracker
    from batchlab.trackers.feed import replay

    store = Store.open(folder)
    runs = replay(store, open_tracker(to, store.path, store.path.name, online=online))
    print(f"{folder / to}: {runs} training run{'s' if runs != 1 else ''}")
    return 0 if runs else 1
