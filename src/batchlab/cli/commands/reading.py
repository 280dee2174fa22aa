"""report, plan, status, mirror: documents and state of a study on disk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from batchlab.cli.arguments import positive, whole
from batchlab.core.batch import MOST_DEVICES
from batchlab.core.parse import MOST_SAMPLES, parse_count

if TYPE_CHECKING:
    from batchlab.core.batch import BatchLayout
    from batchlab.storage.store import Store


def report(folder: Path, /, *, devices: Annotated[int, whole(1, MOST_DEVICES)] = 1) -> int:
    """Rewrite a study's report.html, report.md, tables and plan from its records.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Number of data-parallel devices for which the time to a loss is shown.
    """
    from batchlab.storage.store import Store
    from batchlab.study.documents import write_documents
    from batchlab.words.damage import damage_lines

    store = Store.open(folder)
    findings = write_documents(store, devices=devices)
    print(folder / "report.html")
    for line in damage_lines(findings.damaged):
        print(f"batchlab: {line}", file=sys.stderr)
    return 0 if findings.recommended else 1


def plan(
    folder: Path,
    /,
    *,
    devices: Annotated[int | None, whole(1, MOST_DEVICES)] = None,
    nodes: Annotated[int, whole(1, MOST_DEVICES)] = 1,
    batch_size: Annotated[int | None, whole(1, MOST_SAMPLES)] = None,
    token_budget: str | None = None,
    parameters: str | None = None,
    lr_rule: Literal["saturating", "uncapped", "sqrt", "linear", "keep"] | None = None,
    objective: Literal["quality", "fastest", "soonest", "cheapest", "largest"] | None = None,
    target_loss: Annotated[float | None, positive(1e9)] = None,
    recheck: Annotated[bool, Parameter(negative=())] = False,
    format: Literal[
        "json",
        "hf",
        "trl",
        "lightning",
        "accelerate",
        "deepspeed",
        "torchtitan",
        "nanochat",
        "nanogpt",
        "torchrun",
        "srun",
    ] = "json",
) -> int:
    """The training plan of a study, for a number of devices, in a trainer's own names.

    Parameters
    ----------
    folder
        A study's folder.
    devices
        Number of data-parallel devices of a node (default: as in the study); the global batch size stays, its layout is
        computed anew.
    nodes
        Number of nodes.
    batch_size
        Another global batch size than the recommended one; it need not have been measured.
    token_budget
        Another budget than the study's, e.g. 10B: batch size and learning rate are extrapolated, and marked so.
    parameters
        Extrapolate to a wider model of the same family with this many parameters, e.g. 100M.
    lr_rule
        Move the learning rate from the best batch size to --batch-size by this rule, even where it was measured.
    objective
        Which batch size: the lowest loss (quality), the soonest of those shown to cost no more than the tolerance
        (fastest, the recommended one), the least time or the fewest tokens to the same loss (soonest, cheapest), or the
        largest of those shown (largest).
    target_loss
        For soonest and cheapest: a loss on the way, read along the runs; default: the final loss of the best size.
    recheck
        First run 50 whole steps of the plan's layout on one device, unless a training run had that layout.
    format
        The trainer whose names are printed.
    """
    from batchlab.analysis.extrapolation import Target
    from batchlab.analysis.recommendation import Objective
    from batchlab.core.errors import InputError
    from batchlab.plan import format_plan, make_plan, plan_notes
    from batchlab.scaling.rules import LearningRateRule
    from batchlab.storage.store import Store
    from batchlab.study.documents import read_findings
    from batchlab.words.damage import damage_lines

    target = Target(
        batch_size,
        parse_count(token_budget, "--token-budget") if token_budget is not None else None,
        parse_count(parameters, "--parameters") if parameters is not None else None,
        LearningRateRule(lr_rule) if lr_rule else None,
    )
    if target_loss is not None and objective is None:
        raise InputError("--target-loss needs --objective soonest or --objective cheapest; give one of them.")
    serves = Objective(objective, target_loss) if objective else None
    store = Store.open(folder)
    findings = read_findings(store)
    made = make_plan(findings, devices, target, serves, nodes=nodes)
    if recheck:
        _recheck(store, made.batch_configuration.layout)
        findings = read_findings(store)
        made = make_plan(findings, devices, target, serves, nodes=nodes)
    print(format_plan(made, format))
    for warning in (*made.warnings, *damage_lines(findings.damaged)):
        print(f"batchlab: {warning}", file=sys.stderr)
    for note in plan_notes(made, format):
        print(f"batchlab: {note}", file=sys.stderr)
    return 0


def _recheck(store: Store, layout: BatchLayout) -> None:
    from batchlab.cli.commands.running import stop_on_sigterm
    from batchlab.study.engines import engine_factory
    from batchlab.study.progress import open_view
    from batchlab.study.study import recheck

    view = open_view(quiet=True)  # standard output is for the plan
    stop_on_sigterm()
    try:
        recheck(store.path, layout, engine_factory(store.experiment), view)
    finally:
        view.close()


def status(folder: Path, /, *, verify: Annotated[bool, Parameter(negative=())] = False) -> int:
    """How far a study is: finished, failed and unfinished runs, and files that are damaged.

    Parameters
    ----------
    folder
        A study's folder.
    verify
        Read everything that its conclusions rest on, data files included, and compare it with the recorded digests.
    """
    from batchlab.storage.store import Store
    from batchlab.words.damage import damage_lines
    from batchlab.words.progress import status_lines

    store = Store.open(folder)
    records, damaged = store.scan()
    for line in status_lines(store.experiment, records, store.unfinished(), store.decisions().budget):
        print(line)
    if verify:
        return _verify(store)
    for line in damage_lines(damaged):
        print(f"  {line}")
    return 0


def _verify(store: Store) -> int:
    from batchlab.study.open_study import damaged_data
    from batchlab.words.damage import damage_lines, damaged_data_line, verified_line

    records, damaged = store.scan(in_full=True)
    files, changed = damaged_data(store)
    for line in (*damage_lines(damaged), *map(damaged_data_line, changed)):
        print(f"  {line}")
    print(f"  {verified_line(len(records), files, len(damaged) + len(changed))}")
    return 1 if damaged or changed else 0


def mirror(folder: Path, /, *, to: str, online: Annotated[bool, Parameter(negative="--offline")] = False) -> int:
    """Replay a study's training runs into TensorBoard or Weights & Biases, from its records and metrics.

    Parameters
    ----------
    folder
        A study's folder.
    to
        tensorboard or wandb.
    online
        Also send them to the tracker's service; default: only files in the study's folder are written.
    """
    from batchlab.core.format import format_plural
    from batchlab.storage.store import Store
    from batchlab.trackers import open_tracker
    from batchlab.trackers.feed import replay

    store = Store.open(folder)
    runs = replay(store, open_tracker(to, store.path, store.path.name, online=online))
    print(f"{folder / to}: {format_plural(runs, 'training run')}")
    return 0 if runs else 1
