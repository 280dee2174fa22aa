"""The settings that every command over a TASK shares, and how their texts become experiment values."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from batchlab.core.errors import InputError
from batchlab.recipes import Variant


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings every command over a TASK shares.

    Parameters
    ----------
    out
        Folder of the study; default ./studies/NAME.
    set_
        Any setting by its dotted name, e.g. --set data.path=corpus.txt (see `batchlab settings`).
    batch_sizes
        Global batch sizes: 8,16,32 or 4:64 (doubling).
    search
        adaptive: each run where the ones before promise most; grid: every size at every learning rate.
    prior
        Start the search from an earlier or cheaper study of this model (its folder) or a published law.
    learning_rates
        1e-4,3e-4,1e-3 or 1e-4:3e-3 or 1e-4:3e-3:5.
    seeds
        Runs at the best cell and at its best neighbour.
    confirm
        Fresh seeds at the best cell and its rival; the quoted loss is theirs alone. 0: none.
    token_budget
        Tokens (or samples) of every run.
    time_budget
        Time for the whole sweep, e.g. 3h, 45m, 1h30m; measured throughput turns it into tokens and grid.
    max_runs
        Training runs the sweep may use.
    max_tokens
        Tokens (or samples) that all its runs together may use.
    memory_limit
        Memory a worker may use above its warmed-up baseline, e.g. 16GiB.
    device
        auto, cpu, cuda, cuda:1 or mps.
    precision
        fp32, tf32 or bf16.
    workers
        Training runs at the same time.
    low_resource
        A recipe's own version for a CPU or MPS: about 40M tokens, uncompiled, no TF32.
    quick_test
        A recipe's own version for at most five minutes on two cores: the same kind of model, real text.
    accept_edits
        Go on although the task's source was edited since the study began; the report says so.
    retry_failed
        Run again what failed in an earlier session.
    diagnostics
        off, light or full: what is looked at while runs train (docs/diagnostics.md).
    track
        Show the runs in tensorboard or wandb as well, while they train (may be given twice).
    json
        Print the result as JSON and nothing else.
    """

    out: Path | None = None
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative=())] = ()
    batch_sizes: str | None = None
    search: str | None = None
    prior: str | None = None
    learning_rates: str | None = None
    seeds: int | None = None
    confirm: int | None = None
    token_budget: str | None = None
    time_budget: str | None = None
    max_runs: int | None = None
    max_tokens: str | None = None
    memory_limit: str | None = None
    device: str | None = None
    precision: str | None = None
    workers: int | None = None
    low_resource: Annotated[bool, Parameter(negative=())] = False
    quick_test: Annotated[bool, Parameter(negative=())] = False
    diagnostics: str | None = None
    accept_edits: Annotated[bool, Parameter(negative=())] = False
    retry_failed: Annotated[bool, Parameter(negative=())] = False
    track: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    json: Annotated[bool, Parameter(negative=())] = False


def experiment_values(task: str, options: Options) -> dict[str, Any]:
    """Experiment values from TASK, then --set, then the named flags."""
    from batchlab.core.experiment import set_dotted
    from batchlab.search.grid import parse_learning_rates, parse_sizes
    from batchlab.study.task_source import resolve_task

    variant = variant_of(low_resource=options.low_resource, quick_test=options.quick_test)
    values = resolve_task(task, variant)
    for assignment in options.set_:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: write it as --set name=value, e.g. --set optimizer.beta2=0.99.")
        set_dotted(values, name.strip(), _toml_value(text))
    flags: dict[str, Any] = {
        "batch.global_batch_sizes": parse_sizes(options.batch_sizes) if options.batch_sizes else None,
        "sweep.search": options.search,
        "sweep.prior": options.prior,
        "sweep.learning_rates": parse_learning_rates(options.learning_rates) if options.learning_rates else None,
        "sweep.seeds": options.seeds,
        "sweep.confirm": options.confirm,
        "budget.token_budget": parse_count(options.token_budget, "--token-budget") if options.token_budget else None,
        "budget.time_budget_seconds": parse_duration(options.time_budget) if options.time_budget else None,
        "budget.max_runs": options.max_runs,
        "budget.max_tokens": parse_count(options.max_tokens, "--max-tokens") if options.max_tokens else None,
        "device.memory_limit": options.memory_limit,
        "device.name": options.device,
        "device.precision": options.precision,
        "device.workers": options.workers,
        "diagnostics": options.diagnostics,
    }
    if options.time_budget and not options.token_budget:
        for given in ("token_budget", "epochs"):
            values.get("budget", {}).pop(given, None)
    for name, value in flags.items():
        if value is not None:
            set_dotted(values, name, value)
    return values


def variant_of(*, low_resource: bool, quick_test: bool) -> Variant | None:
    """The version of a recipe that two flags ask for; InputError where both do."""
    if low_resource and quick_test:
        raise InputError("--low-resource and --quick-test are two versions of a recipe; give one of them.")
    return "low_resource" if low_resource else "quick_test" if quick_test else None


def _toml_value(text: str) -> object:
    """A value as TOML reads it (numbers, true, lists); anything else is the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def parse_count(text: str, flag: str) -> int:
    """A number of tokens: 262144, 262_144, 50M, 1.5B, 4e6."""
    match = re.fullmatch(r"([0-9_.]+(?:e[0-9]+)?)\s*([kmb]?)", text.strip().lower())
    factor = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
    try:
        value = float(match[1].replace("_", "")) * factor[match[2]] if match else 0
    except ValueError:
        value = 0
    if value < 1 or value != int(value):
        raise InputError(f"{flag} {text} is not a whole number; write it like 262144, 50M or 1.5B.")
    return int(value)


def parse_duration(text: str) -> float:
    """Seconds of `3h`, `45m`, `90s`, `1h30m`; InputError for anything else."""
    match = re.fullmatch(
        r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower()
    )
    seconds = (
        sum(float(part) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True) if part)
        if match
        else 0
    )
    if seconds <= 0:
        raise InputError(f"--time-budget {text} is not a length of time; write it like 3h, 45m or 1h30m.")
    return seconds
