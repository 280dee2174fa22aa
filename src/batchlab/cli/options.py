"""The options that every command over a TASK shares, and the experiment that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from batchlab.cli.arguments import whole
from batchlab.core.errors import InputError, quote
from batchlab.core.parse import (
    MOST_RUNS,
    MOST_SEEDS,
    MOST_WORKERS,
    is_open,
    parse_baseline,
    parse_count,
    parse_devices,
    parse_duration,
    parse_learning_rates,
    parse_shares,
    parse_sizes,
)
from batchlab.core.settings import read_toml, set_dotted
from batchlab.recipes import Variant

if TYPE_CHECKING:
    from batchlab.core.experiment import Experiment


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every command over a TASK.

    Parameters
    ----------
    out
        Folder of the study; default: ./studies/NAME.
    set_
        Any setting by its dotted name, e.g. --set data.path=corpus.txt (see `batchlab settings`).
    batch_sizes
        Global batch sizes: 8,16,32, 4:64 (doublings) or 1:max (until memory ends).
    search
        adaptive: each run where it is expected to improve the answer most; grid: every size at every learning rate.
    prior
        Start the search from an earlier or cheaper study of this model (its folder) or from a published law.
    learning_rates
        1e-4,3e-4,1e-3, or a range: 1e-4:3e-3, or 1e-4:3e-3:5 for five values.
    warmup
        Warm-ups to try at every batch size, as shares of a run: 0.01,0.05. Each size is judged at its best one.
    lr_rule
        Of a grid: keep, sqrt or linear; the learning rates follow the batch size by this rule from the reference batch.
    baseline
        BATCH:LR:LOSS, as in 128:3e-4:1.487: train this first, and sweep only if it reaches that loss within 2 % beyond
        its interval (baseline.within; baseline.if_missed=continue sweeps anyway).
    retry_diverged
        Try a cell that diverged again up to so many times, each at half the learning rate and twice the warm-up of the
        last (at most half of the run; 2 % where there was none). Such runs come on top of --max-runs and --time-budget.
    seeds
        Runs at the best cell and at its best neighbour.
    confirm
        Confirmation seeds at the best cell and its rival; the quoted loss comes from them alone. 0: none.
    token_budget
        Tokens (or samples) of every run.
    time_budget
        Time for the whole sweep, e.g. 3h, 45m, 1h30m; the measured throughput turns it into a token budget.
    run_time
        Time that every run trains, e.g. 5m, instead of equal tokens: faster batch sizes see more tokens.
    max_runs
        Different batch sizes and learning rates to try; the runs for further seeds come on top.
    max_tokens
        Tokens (or samples) that all runs together may use, with their seeds.
    memory_limit
        Memory that a worker may use above its warmed-up baseline, e.g. 16GiB.
    device
        auto, cpu, cuda, cuda:1 or mps.
    devices
        Devices of this machine that share every batch: 4. 1,2,4 also measures the throughput on fewer.
    precision
        fp32, tf32, bf16 or fp16.
    workers
        Concurrent training runs.
    launch
        A command that starts each worker elsewhere, e.g. 'srun -N1 -n1 --gpus=1'; with --workers, so many at a time.
    hosts
        A hosts.toml with the machines to run on (docs/cluster.md).
    low_resource
        A recipe's version for a CPU or MPS: about 40M tokens, not compiled, no TF32.
    quick_test
        A recipe's version for at most five minutes on two cores: the same kind of model, real text.
    accept_edits
        Continue although the task's source was edited since the study began; the report says so.
    retry_failed
        Run again what failed in an earlier session, or was killed for lack of memory.
    diagnostics
        off, light or full: what is recorded during training beside the loss (docs/diagnostics.md).
    track
        Also log the runs to tensorboard or wandb while they train; may be given twice.
    json
        Print the result as JSON and nothing else.
    """

    out: Path | None = None
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = ()
    batch_sizes: str | None = None
    search: str | None = None
    prior: str | None = None
    learning_rates: str | None = None
    warmup: str | None = None
    lr_rule: str | None = None
    baseline: str | None = None
    retry_diverged: Annotated[int | None, whole(0, 10)] = None
    seeds: Annotated[int | None, whole(1, MOST_SEEDS)] = None
    confirm: Annotated[int | None, whole(0, MOST_SEEDS)] = None
    token_budget: str | None = None
    time_budget: str | None = None
    run_time: str | None = None
    max_runs: Annotated[int | None, whole(1, MOST_RUNS)] = None
    max_tokens: str | None = None
    memory_limit: str | None = None
    device: str | None = None
    devices: str | None = None
    precision: str | None = None
    workers: Annotated[int | None, whole(1, MOST_WORKERS)] = None
    launch: str | None = None
    hosts: Path | None = None
    low_resource: Annotated[bool, Parameter(negative=())] = False
    quick_test: Annotated[bool, Parameter(negative=())] = False
    diagnostics: str | None = None
    accept_edits: Annotated[bool, Parameter(negative=())] = False
    retry_failed: Annotated[bool, Parameter(negative=())] = False
    track: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    json: Annotated[bool, Parameter(negative=())] = False


def parse_experiment(task: str, options: Options, more: Mapping[str, object] | None = None) -> Experiment:
    """The experiment of a command line: TASK, then --set, then the named flags, then `more` by dotted names.

    Raises InputError naming the first value that is wrong.
    """
    from batchlab.core.experiment import build_experiment
    from batchlab.study.task_source import resolve_task

    values = resolve_task(task, variant_of(low_resource=options.low_resource, quick_test=options.quick_test))
    for assignment in options.set_:
        name, equals, text = assignment.partition("=")
        if not (equals and name.strip() and text.strip()):
            raise InputError(
                f"--set {quote(assignment)}: write it as --set name=value, e.g. --set optimizer.beta2=0.99."
            )
        set_dotted(values, name.strip(), _toml_value(text))
    for given in _replaced(options):
        set_dotted(values, given, None)
    for name, value in {**_flags(options), **_baseline(options), **(more or {})}.items():
        if value is not None:
            set_dotted(values, name, value)
    return build_experiment(values)


def _replaced(options: Options) -> tuple[str, ...]:
    """Settings of a recipe or study.toml that a flag gives another length to."""
    if options.run_time is not None:
        return "budget.token_budget", "budget.epochs", "budget.time_budget_seconds", "budget.max_tokens"
    if options.time_budget is not None and options.token_budget is None:
        return "budget.token_budget", "budget.epochs"
    return ()


def _flags(options: Options) -> dict[str, object]:
    """Dotted setting → the value of the flag that sets it; None where the flag was not given."""
    devices = parse_devices(options.devices) if options.devices is not None else ()
    return {
        "batch.global_batch_sizes": _if_given(parse_sizes, options.batch_sizes),
        "batch.open_end": _if_given(is_open, options.batch_sizes),
        "sweep.search": options.search,
        "sweep.prior": options.prior,
        "sweep.learning_rates": _if_given(parse_learning_rates, options.learning_rates),
        "sweep.warmup_fractions": _if_given(parse_shares, options.warmup, "--warmup"),
        "sweep.learning_rate_rule": options.lr_rule,
        "sweep.retry_diverged": options.retry_diverged,
        "sweep.seeds": options.seeds,
        "sweep.confirm": options.confirm,
        "budget.token_budget": _if_given(parse_count, options.token_budget, "--token-budget"),
        "budget.time_budget_seconds": _if_given(parse_duration, options.time_budget),
        "budget.run_time_seconds": _if_given(parse_duration, options.run_time, "--run-time"),
        "budget.max_runs": options.max_runs,
        "budget.max_tokens": _if_given(parse_count, options.max_tokens, "--max-tokens"),
        "device.memory_limit": options.memory_limit,
        "device.name": options.device,
        "device.data_parallel_size": devices[-1] if devices else None,
        "device.compared_devices": devices[:-1] or None,
        "device.precision": options.precision,
        "device.workers": options.workers,
        "diagnostics": options.diagnostics,
    }


def _baseline(options: Options) -> dict[str, object]:
    """--baseline leaves the baseline's other settings as they are."""
    given = {} if options.baseline is None else parse_baseline(options.baseline)
    return {f"baseline.{name}": value for name, value in given.items()}


def _if_given(parse: Callable[..., object], text: str | None, *more: str) -> object:
    return None if text is None else parse(text, *more)


def variant_of(*, low_resource: bool, quick_test: bool) -> Variant | None:
    """The version of a recipe that two flags ask for. Raises InputError where both are given."""
    if low_resource and quick_test:
        raise InputError("--low-resource and --quick-test are two versions of a recipe; give one of them.")
    return "low_resource" if low_resource else "quick_test" if quick_test else None


def _toml_value(text: str) -> object:
    """A value as TOML reads it (numbers, true, lists); anything else is text."""
    try:
        read = read_toml(f"value = {text}")
    except ValueError:
        return text
    return read["value"] if list(read) == ["value"] else text
