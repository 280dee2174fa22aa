"""study, check, throughput, sweep: a study up to one of its stages."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from batchlab.cli.commands.running import DEFAULTS, TaskArgument, run_to
from batchlab.cli.options import Options, experiment_values


def study(
    task: TaskArgument, /, options: Options = DEFAULTS, *, dry_run: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """All of it, resumable: check, capacity, throughput, sweep, report, plan.

    Parameters
    ----------
    dry_run
        Say what would run, write nothing.
    """
    if dry_run:
        return _dry_run(task, options)
    return run_to(task, options, "sweep")


def check(task: TaskArgument, /, options: Options = DEFAULTS) -> int:
    """Is this task sound: mean or sum, splits, seeds, learning rate, evaluation, leaks? At most 30 s."""
    return run_to(task, options, "check")


def throughput(task: TaskArgument, /, options: Options = DEFAULTS) -> int:
    """Tokens per second at each batch size, measured alone on the device."""
    return run_to(task, options, "throughput")


def sweep(task: TaskArgument, /, options: Options = DEFAULTS) -> int:
    """Batch × learning rate at a constant token budget; the same as `study`."""
    return run_to(task, options, "sweep")


def _dry_run(task: str, options: Options) -> int:
    from batchlab.core.experiment import build_experiment
    from batchlab.study.open_study import complete, engine_factory, inspect, require_sound
    from batchlab.study.prior import read_prior
    from batchlab.study.study import describe_plan

    values = experiment_values(task, options)
    asked = build_experiment(values)
    task_info = inspect(asked, engine_factory(asked))
    experiment = complete(asked, task_info)
    require_sound(experiment, task_info)
    read_prior(experiment, task_info)
    for line in describe_plan(experiment, task_info):
        print(line)
    return 0
