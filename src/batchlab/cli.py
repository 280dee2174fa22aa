"""The command line: parse, call, print. Heavy imports wait inside the commands, so that `--help` is quick.

Exit codes: 0 done; 1 finished, but an answer that was asked for is missing; 2 wrong usage or input; 130 stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter

from batchlab import __version__
from batchlab.errors import BatchlabError, did_you_mean
from batchlab.options import Options, experiment_values

if TYPE_CHECKING:
    from batchlab.opening import EngineFactory
    from batchlab.study import Stage, StudyResult

app = App(
    name="batchlab",
    help="What batch size, and what learning rate, should I train this model with on this hardware?",
    version=__version__,
    help_format="plaintext",
    result_action="return_value",
)

What = Annotated[str, Parameter(help="recipe name, study.toml, file.py[:name] or package.module:name")]


DEFAULTS = Options()


@app.command
def study(
    what: What, /, options: Options = DEFAULTS, *, dry_run: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """All of it, resumable: check, capacity, throughput, sweep, report, plan.

    Parameters
    ----------
    dry_run
        Say what would run, write nothing.
    """
    if dry_run:
        return _dry_run(what, options)
    return _run(what, options, "sweep")


@app.command
def check(what: What, /, options: Options = DEFAULTS) -> int:
    """Is this task sound: mean or sum, splits, seeds, learning rate, evaluation, leaks? At most 30 s."""
    return _run(what, options, "check")


@app.command
def capacity(what: What, /, options: Options = DEFAULTS) -> int:
    """The largest micro-batch that fits, also beyond what the sweep needs."""
    return _run(what, options, "capacity")


@app.command
def throughput(what: What, /, options: Options = DEFAULTS) -> int:
    """Tokens per second at each batch size, measured alone on the device."""
    return _run(what, options, "throughput")


@app.command
def sweep(what: What, /, options: Options = DEFAULTS) -> int:
    """Batch × learning rate at a constant token budget; the same as `study`."""
    return _run(what, options, "sweep")


@app.command
def report(folder: Path, /) -> int:
    """Write a study's report.html, report.md, tables and plan again from its records."""
    from batchlab.store import Store
    from batchlab.study import write_documents

    opened = Store.open(folder)
    findings = write_documents(opened, partial=not opened.decisions().get("complete", False))
    print(folder / "report.html")
    return 0 if findings.recommended else 1


@app.command
def plan(
    folder: Path,
    /,
    *,
    devices: int = 1,
    batch_size: int | None = None,
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
        Another global batch size of the study than the recommended one.
    format
        Whose names to print.
    """
    from batchlab.plan import format_plan, make_plan
    from batchlab.store import Store
    from batchlab.study import read_findings

    findings = read_findings(Store.open(folder), partial=False)
    print(format_plan(make_plan(findings, devices=devices, global_batch_size=batch_size), format))
    return 0


@app.command
def status(folder: Path, /) -> int:
    """How far a study is: finished, failed and unfinished runs."""
    from batchlab.progress import status_lines
    from batchlab.store import Store

    store = Store.open(folder)
    for line in status_lines(store.experiment, store.records(), store.unfinished(), store.decisions()):
        print(line)
    return 0


@app.command
def recipes(name: str | None = None, /, *, toml: Annotated[bool, Parameter(negative=())] = False) -> int:
    """The studies that ship, or one of them in full.

    Parameters
    ----------
    name
        A recipe's name.
    toml
        Print it as a study.toml to edit.
    """
    import tomli_w

    from batchlab.experiment import build_experiment
    from batchlab.recipes import RECIPES, recipe
    from batchlab.what import resolve_what

    if name is None:
        for known in RECIPES:
            print(f"{known:12} {recipe(known).summary}")
        return 0
    found = recipe(name)
    if toml:
        print(tomli_w.dumps({"task": name, **found.experiment}), end="")
        return 0
    print(found.summary)
    print(tomli_w.dumps(build_experiment(resolve_what(name)).model_dump(mode="json", exclude_none=True)), end="")
    return 0


@app.command
def settings() -> int:
    """Every setting --set knows, with its default."""
    from batchlab.experiment import describe_settings

    for line in describe_settings():
        print(line)
    return 0


@app.command
def doctor() -> int:
    """What batchlab sees on this machine: devices, cores, memory, optional packages."""
    from batchlab.doctor import doctor_lines

    for line in doctor_lines():
        print(line)
    return 0


@app.command(show=False)
def worker(*, study: Path) -> int:
    """Execute specs from standard input (used by engines)."""
    from batchlab.engines.worker import main as work

    return work(["--study", str(study)])


def _run(what: str, options: Options, until: Stage) -> int:
    from batchlab.progress import open_view
    from batchlab.study import run_study

    values = experiment_values(what, options)
    folder = options.out or Path("studies") / str(values["name"])
    view = open_view(options.json)
    view.say(f"study {folder}")
    _stop_on_sigterm()
    try:
        result = run_study(
            values,
            folder,
            engine_factory(values),
            view,
            until=until,
            accept_edits=options.accept_edits,
            retry_failed=options.retry_failed,
        )
    finally:
        view.close()
    if options.json:
        print(json.dumps(_as_json(result), indent=2))
    elif until == "sweep":
        print()
        print("\n".join(result.summary))
    return 0 if result.answered_at(until) else 1


def _as_json(result: StudyResult) -> dict[str, Any]:
    from batchlab.study import plan_or_none

    plan = plan_or_none(result.findings)
    return {
        "folder": str(result.folder),
        "answered": result.answered,
        "summary": list(result.summary),
        "plan": plan.model_dump(mode="json") if plan else None,
    }


def engine_factory(values: dict[str, Any]) -> EngineFactory:
    """The simulated device needs no process of its own; everything else runs in worker processes."""
    from batchlab.engines.inline import InlineEngine
    from batchlab.engines.local import LocalEngine

    if values.get("device", {}).get("name") == "simulated":
        return lambda folder, workers: InlineEngine(folder)
    return lambda folder, workers: LocalEngine(folder, workers)


def _dry_run(what: str, options: Options) -> int:
    from batchlab.experiment import build_experiment
    from batchlab.opening import complete, inspect, require_sound
    from batchlab.study import describe_plan

    values = experiment_values(what, options)
    asked = build_experiment(values)
    subject = inspect(asked, engine_factory(values))
    experiment = complete(asked, subject)
    require_sound(experiment, subject)
    for line in describe_plan(experiment, subject):
        print(line)
    return 0


def _stop_on_sigterm() -> None:
    """SIGTERM ends a study as Ctrl-C does: workers save, the report is written."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point of the `batchlab` command."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"batchlab: {_usage_sentence(error, arguments)}", file=sys.stderr)
        return 2
    except BatchlabError as error:
        print(f"batchlab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("batchlab: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code if isinstance(code, int) else 0


def _usage_sentence(error: CycloptsError, arguments: list[str]) -> str:
    commands = [name for name in app if not name.startswith("-")]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        close = did_you_mean(arguments[0], commands)
        return f"There is no command {arguments[0]!r}.{close} Possible: {', '.join(sorted(commands))}."
    return f"{str(error).strip()} Try: batchlab {arguments[0] if arguments else ''} --help"
