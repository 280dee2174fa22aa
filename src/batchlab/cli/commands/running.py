"""What every command over a TASK does: open its study, run it up to a stage, print the result."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from batchlab.cli.options import Options
from batchlab.core.errors import InputError

if TYPE_CHECKING:
    from batchlab.core.experiment import Experiment
    from batchlab.core.protocols import View
    from batchlab.engines.hosts import Place
    from batchlab.study.stages.capacity_request import CapacityRequest
    from batchlab.study.study import Stage, StudyResult

TaskArgument = Annotated[str, Parameter(help="recipe name, study.toml, file.py[:name] or package.module:name")]

DEFAULTS = Options()


def run_to(
    experiment: Experiment,
    options: Options,
    until: Stage,
    request: CapacityRequest | None = None,
    *,
    speed_variants: bool = False,
) -> int:
    """Run the study of an experiment up to a stage, print what came of it, and return the exit code.

    request: what the capacity stage is asked where it is the last; default: the largest micro-batch. speed_variants:
    where throughput is the last, also time other precisions and compilation.
    """
    from batchlab.engines.reach import reach
    from batchlab.storage.store import Store
    from batchlab.study.engines import engine_factory

    folder = options.out or Path("studies") / experiment.name
    places = places_of(options.launch, options.hosts, options.workers)
    hosts = reach(places, folder, devices=experiment.device.data_parallel_size) if places else ()
    make_engine = engine_factory(experiment, hosts, None if Store.exists(folder) else folder)
    # Imported while the process that will inspect the task imports torch.
    from batchlab.study.progress import open_view
    from batchlab.study.stages.capacity_request import LARGEST
    from batchlab.study.study import run_study

    _encode_text(experiment, folder)
    view = tracked(open_view(options.json), folder, options.track)
    view.say(f"study {folder}")
    stop_on_sigterm()
    try:
        result = run_study(
            experiment,
            folder,
            make_engine,
            view,
            until=until,
            request=request or LARGEST,
            speed_variants=speed_variants,
            accept_edits=options.accept_edits,
            retry_failed=options.retry_failed,
            hosts=hosts,
        )
    finally:
        view.close()
    if options.json:
        print(json.dumps(_as_json(result, until), indent=2))
    elif until == "sweep":
        print()
        print("\n".join(result.summary))
    return 0 if result.answered_at(until) else 1


def places_of(launch: str | None, hosts: Path | None, workers: int | None = None) -> tuple[Place, ...]:
    """Where workers are to run; empty: here. Raises InputError."""
    from batchlab.engines.hosts import launched, read_hosts

    if launch is not None and hosts is not None:
        raise InputError("--launch and --hosts both say where workers run; give one of them.")
    if launch is not None:
        return launched(launch, workers)
    return read_hosts(hosts) if hosts is not None else ()


def _encode_text(experiment: Experiment, folder: Path) -> None:
    """Turn a recipe's text into token ids here, with a progress bar, rather than silently in a worker."""
    if experiment.task.kind != "recipe" or experiment.data.tokenizer == "bytes":
        return
    from batchlab.cli.commands.data import bars
    from batchlab.data.source import encode_beside

    with bars() as progress:
        encode_beside(experiment.data, folder / "cache", progress)


def tracked(view: View, folder: Path, names: tuple[str, ...]) -> View:
    """The view, with everything it is shown also sent to the trackers named.

    Raises InputError for an unknown or missing tracker, before anything is begun.
    """
    if not names:
        return view
    from batchlab.trackers import open_tracker
    from batchlab.trackers.feed import Feed, TrackedView

    trackers = {name: open_tracker(name, folder.absolute(), folder.absolute().name) for name in names}
    return TrackedView(view, Feed(folder, trackers, view.say))


def _as_json(result: StudyResult, until: Stage) -> dict[str, Any]:
    from batchlab.study.documents import plan_or_none

    if until == "capacity":
        memory = result.findings.memory
        found = memory.as_dict() if memory else {"max_micro_batch_size": None, "status": "none"}
        return {"folder": str(result.folder), "failure": result.failure, **found}
    plan = plan_or_none(result.findings)
    return {
        "folder": str(result.folder),
        "answered": result.answered,
        "failure": result.failure,
        "summary": list(result.summary),
        "plan": plan.model_dump(mode="json") if plan else None,
    }


def stop_on_sigterm() -> None:
    """Make SIGTERM end a study as Ctrl-C does: workers save, the report is written."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
