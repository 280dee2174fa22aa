"""study, check, throughput, sweep: a study up to one of its stages."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from batchlab.cli.commands.running import DEFAULTS, What, run_to
from batchlab.cli.options import Options, experiment_values


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
    return run_to(what, options, "sweep")


def check(what: What, /, options: Options = DEFAULTS) -> int:
    """Is this task sound: mean or sum, splits, seeds, learning rate, evaluation, leaks? At most 30 s."""
    return run_to(what, options, "check")


def throughput(what: What, /, options: Options = DEFAULTS) -> int:
    """Tokens per second at each batch size, measured alone on the device."""
    return run_to(what, options, "throughput")


def sweep(what: What, /, options: Options = DEFAULTS) -> int:
    """Batch × learning rate at a constant token budget; the same as `study`."""
    return run_to(what, options, "sweep")


def _dry_run(what: str, options: Options) -> int:
    from batchlab.core.experiment import build_experiment
    from batchlab.study.open_study import complete, engine_factory, inspect, require_sound
    from batchlab.study.prior import read_prior
    from batchlab.study.study import describe_plan

    values = experiment_values(what, options)
    asked = build_experiment(values)
    subject = inspect(asked, engine_factory(asked))
    experiment = complete(asked, subject)
    require_sound(experiment, subject)
    read_prior(experiment, subject)
    for line in describe_plan(experiment, subject):
        print(line)
    return 0
