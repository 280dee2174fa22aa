"""train: the run that a plan describes."""

from __future__ import annotations

import json as text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from batchlab.cli.arguments import whole
from batchlab.cli.commands.running import stop_on_sigterm, tracked
from batchlab.core.ranks import Membership

if TYPE_CHECKING:
    from batchlab.study.training import Trained


def train(
    plan: Path,
    /,
    *,
    out: Path | None = None,
    device: str | None = None,
    seed: Annotated[int, whole(0, 2**31)] = 0,
    track: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Train what a plan says: pre-flight, the run with checkpoints, its weights, and predicted against actual.

    Interrupted, or killed, the same command continues from the last checkpoint. Under torchrun, srun or accelerate it
    is one of the plan's ranks; without them it starts as many processes as the plan has devices.

    Parameters
    ----------
    plan
        A training_plan.json.
    out
        Folder of the run; default: ./training/STUDY-bBATCH.
    device
        cpu, cuda or simulated; default: as in the study.
    seed
        Of parameters and the order of samples.
    track
        Also show the run in tensorboard or wandb, with files in its folder; may be given several times.
    json
        Print the result as JSON and nothing else.
    """
    from batchlab.plan.train_spec import train_spec
    from batchlab.study.progress import open_view
    from batchlab.study.training import read_plan, run_plan
    from batchlab.words.training import preflight_line, run_line

    made = read_plan(plan)
    c = made.batch_configuration
    folder = out or Path("training") / f"{made.made_from.study}-b{c.global_batch_size}"
    spec = train_spec(made, device=device, seed=seed)
    stop_on_sigterm()
    leads = Membership.of().rank == 0  # the other ranks write nothing
    view = tracked(open_view(json), folder, track if leads else ())
    try:
        view.say(run_line(spec))
        trained = run_plan(
            made,
            folder,
            view,
            device=device,
            seed=seed,
            say=lambda item: view.say(f"   {preflight_line(item.name, item.status, item.found, item.expected)}"),
        )
    finally:
        view.close()
    _print(trained, as_json=json)
    return 0 if trained.result is not None and trained.record.outcome == "completed" else 1


def _print(trained: Trained, *, as_json: bool) -> None:
    from batchlab.words.training import outcome_lines

    expected = trained.plan.performance_targets
    if as_json:
        result = trained.record.model_dump(mode="json")
        predicted = expected.model_dump(mode="json")
        weights = str(trained.weights) if trained.weights else None
        print(text.dumps({"predicted": predicted, "record": result, "weights": weights}, indent=2))
        return
    lines = outcome_lines(
        trained.record,
        trained.plan.batch_configuration.unit,
        hours=expected.hours,
        peak_bytes=expected.peak_bytes,
        loss=(expected.val_loss, expected.low, expected.high),
    )
    print("\n".join(lines))
    if trained.weights is not None:
        print(f"weights  {trained.weights}")
