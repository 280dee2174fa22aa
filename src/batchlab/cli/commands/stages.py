"""study, check, throughput, sweep: a study up to one of its stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from batchlab.cli.commands.running import DEFAULTS, TaskArgument, run_to
from batchlab.cli.options import Options, parse_experiment

if TYPE_CHECKING:
    from batchlab.core.experiment import Experiment


def study(
    task: TaskArgument, /, options: Options = DEFAULTS, *, dry_run: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """The whole study, resumable: check, capacity, throughput, sweep, report, plan.

    Parameters
    ----------
    dry_run
        Print what would run; write nothing.
    """
    experiment = parse_experiment(task, options)
    return _dry_run(experiment) if dry_run else run_to(experiment, options, "sweep")


def check(task: TaskArgument, /, options: Options = DEFAULTS) -> int:
    """Is the task sound? Loss reduction, data splits, seeds, learning rate, evaluation, leaks; at most 30 s."""
    return run_to(parse_experiment(task, options), options, "check")


def throughput(
    task: TaskArgument, /, options: Options = DEFAULTS, *, variants: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """Tokens per second at each batch size, measured alone on the device.

    Parameters
    ----------
    variants
        Also time what TF32, bf16, fp16 and torch.compile gain here, each alone at the largest size, beside what is
        expected of them, with advice.
    """
    return run_to(parse_experiment(task, options), options, "throughput", speed_variants=variants)


def sweep(task: TaskArgument, /, options: Options = DEFAULTS) -> int:
    """Batch size × learning rate at a constant token budget; the same as `study`."""
    return run_to(parse_experiment(task, options), options, "sweep")


def _dry_run(experiment: Experiment) -> int:
    from batchlab.search.cost import cost_of
    from batchlab.study.engines import engine_factory
    from batchlab.study.open_study import prepare
    from batchlab.study.prior import read_prior
    from batchlab.words.progress import describe_plan
    from batchlab.words.search import describe_cost

    experiment, task_info = prepare(experiment, engine_factory(experiment))
    read_prior(experiment, task_info)
    for line in describe_plan(experiment, task_info, describe_cost(cost_of(experiment, task_info))):
        print(line)
    return 0
