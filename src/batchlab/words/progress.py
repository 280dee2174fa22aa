"""What a study says while it runs, before it starts (`--dry-run`, `--plan-runs`) and between runs (`status`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.sweep.baseline import baseline_seeds
from batchlab.analysis.sweep.throughput import BUSY_SHARE
from batchlab.core.batch import Unit
from batchlab.core.experiment import DEFAULT_TIME_BUDGET, Experiment
from batchlab.core.format import (
    format_bytes,
    format_count,
    format_duration,
    format_learning_rate,
    format_list,
    format_percent,
    format_percents,
    format_plural,
)
from batchlab.core.integration import IntegrationName
from batchlab.core.protocols import Waiting
from batchlab.core.record import Outcome, Record, TaskInfo, ThroughputResult, TrainResult
from batchlab.core.spec import CheckSpec, Spec, TrainSpec
from batchlab.search.budget import explored, token_budget_of
from batchlab.search.repeats import Repeats
from batchlab.search.starting_rates import swept_rates
from batchlab.storage.decisions import BudgetDecision
from batchlab.words.baseline import IF_MISSED, baseline_title
from batchlab.words.capacity_reasons import describe_limit
from batchlab.words.retries import retry_rule
from batchlab.words.search import describe_budget

if TYPE_CHECKING:
    from batchlab.data.prepare import Prepared

CHECK = "check: is the task sound?"
CAPACITY = "capacity: which micro-batch fits?"
THROUGHPUT = "throughput: tokens per second, alone on the device"

_UNNAMED = "another process"
_IF_STOPPED = "if that process was stopped, continue or end it"

NOTHING_TO_TRAIN = "Nothing is left to train."

RefusedFor = Literal["memory", "data", "steps", "learning rate"]


def sweep_title(runs: int, budget: BudgetDecision, unit: Unit, warmups: Collection[float | None] = ()) -> str:
    """The title of one round of the sweep. `warmups`: of its runs, None where the warm-up is no axis."""
    each = f"{budget.token_budget:,} {unit.value}"
    if budget.run_seconds is not None:
        each = f"{format_duration(budget.run_seconds)} each, at most {each}"
    shares = sorted({share for share in warmups if share is not None})
    each += f", warm-up {format_percents(shares)}" if shares else ""
    return f"sweep: {format_plural(runs, 'run')} of {each}"


def half_budget_title(token_budget: int, unit: Unit) -> str:
    """The title of the run that tells what a higher loss costs."""
    return f"slope: 1 run of the best cell with {token_budget:,} {unit.value}"


def seeds_title(seeds: int, cells: int) -> str:
    """The title of the seeds that are run after the search."""
    at = "the best cell" if cells == 1 else "the two cells that decide"
    return f"seeds: {format_plural(seeds, 'seed')} of {at}"


def critical_title(runs: int, kind: Literal["whole runs", "segments", "decays", "branches"]) -> str:
    """The title of one part of `critical --run`."""
    what = {
        "whole runs": format_plural(runs, "run for steps to a loss", "runs for steps to a loss"),
        "segments": f"{format_plural(runs, 'segment')} of parent runs at constant learning rate",
        "decays": f"{format_plural(runs, 'decay')} from those segments",
        "branches": format_plural(runs, "branch", "branches"),
    }
    return f"critical: {what[kind]}"


_TRAINERS: dict[IntegrationName, str] = {
    "script": "a script",
    "hf": "the Trainer of transformers",
    "lightning": "Lightning",
}


def no_further_runs(integration: IntegrationName) -> str:
    """Why a study that batchlab's own loop did not train gets no runs for its critical batch size."""
    return (
        f"This study was trained by {_TRAINERS[integration]}, and `critical --run` needs the inside of a step, for "
        "branches that begin where another run ended: port the training to a batchlab.task, or judge by the sweep."
    )


def describe_finished(spec: Spec, record: Record) -> str:
    """One line about a finished run: what it was and how it ended."""
    if isinstance(spec, TrainSpec):
        layout = spec.layout
        name = f"batch {layout.global_batch_size} × LR {format_learning_rate(spec.learning_rate)}, seed {spec.seed}"
        if layout.grad_accum_steps > 1:
            name += f" ({layout.grad_accum_steps} micro-batches of {layout.micro_batch_size})"
    else:
        name = record.run_id
    if record.outcome is not Outcome.COMPLETED:
        reason = "" if isinstance(spec, CheckSpec) else f" {record.reason}"  # which ends the study, and is said there
        return f"{name}: {record.outcome.label}.{reason}"
    result = record.result
    if isinstance(result, TrainResult) and result.val_loss is not None:
        undertrained = ", undertrained" if result.undertrained else ""
        judged = "val loss" if spec.workload.metric is None else spec.workload.metric.title
        return f"{name}: {judged} {result.val_loss:.4f} in {format_duration(result.seconds)}{undertrained}"
    return f"{name}: done"


def waiting_line(owner: str) -> str:
    """A measurement waits for one of another process, since both need the device to themselves."""
    return f"   waiting until {owner or _UNNAMED} has finished measuring on this device; {_IF_STOPPED}"


def describe_waiting(waiting: Waiting) -> str:
    """A run, or a file that a run needs, is awaited from another process."""
    done = f"made {waiting.file}" if waiting.file else f"finished {waiting.run_id}"
    return f"waiting until {waiting.owner or _UNNAMED} has {done}; {_IF_STOPPED}"


def describe_remaining(done: int, runs: int, seconds_left: float) -> str:
    """How far a stage is, and how long the rest takes at the pace so far."""
    return f"[{done} of {runs}, about {format_duration(seconds_left)} left]"


def documents_not_written(error: Exception, folder: Path) -> str:
    """A warning: the study goes on without its documents."""
    return f"   warning: tables, plan and report are not up to date; `batchlab report {folder}` writes them. {error}"


def open_axis(sizes: Sequence[int]) -> str:
    """The sizes of an axis that was open at its end."""
    return f"batch sizes: {format_list(sizes)}, as far as they fit and can be judged"


def describe_throughput(size: int, result: ThroughputResult, unit: Unit) -> str:
    """One measured batch size, with a caveat where other programs used the device."""
    others = result.other_load or 0.0
    caveat = f" (other programs used {100 * others:.0f} % of the device)" if others > BUSY_SHARE else ""
    if result.flops_per_token and result.peak_flops:
        caveat = (
            f", {format_percent(result.tokens_per_second * result.flops_per_token / result.peak_flops)} MFU{caveat}"
        )
    return f"batch {size}: {result.tokens_per_second:,.0f} {unit.value}/s{caveat}"


def describe_capacity(capacity: Capacity) -> str:
    """The result of the capacity stage, where only what the sweep needs was searched for."""
    limit, size, failed = capacity.limit_bytes, capacity.max_micro_batch_size, capacity.smallest_failed
    within = f" within {format_bytes(limit)}{describe_limit(capacity.limit_is)}" if limit else ""
    if size is None:
        return f"nothing fits{within}"
    tail = f"; {failed} does not" if failed is not None else ""
    if size >= capacity.searched_up_to:
        tail = "; the sweep needs no larger one"
    return f"micro-batch {size} fits{within}{tail}"


def status_lines(
    experiment: Experiment,
    records: Sequence[tuple[Spec, Record]],
    unfinished: Sequence[str],
    budget: BudgetDecision | None,
) -> list[str]:
    """How far a study is: one line per kind of run, then what failed and what is unfinished."""
    lines = [f"{experiment.name}: {experiment.task}"]
    for kind in ("check", "capacity", "throughput", "workers", "all_reduce", "train"):
        outcomes = Counter(record.outcome.label for spec, record in records if spec.kind == kind)
        if outcomes:
            lines.append(f"  {kind:10} " + ", ".join(f"{n} {word}" for word, n in sorted(outcomes.items())))
    if budget is not None:
        lines.append(f"  planned    {describe_budget(budget, experiment.unit)}")
    lines += [
        f"  {record.run_id}: {record.outcome.label}. {record.reason}"
        for _, record in records
        if record.outcome is Outcome.FAILED
    ]
    return [*lines, *(f"  {run}: unfinished; rerun the study's command to continue it" for run in unfinished)]


def describe_plan(experiment: Experiment, task_info: TaskInfo, cost: str) -> list[str]:
    """What a new study would run, for `--dry-run`. How long it takes is known only once throughput is measured."""
    sizes, budget, unit = experiment.batch.global_batch_sizes, experiment.budget, experiment.unit.value
    parameters, samples, held_out = (
        "unknown" if count is None else f"{count:,}"
        for count in (task_info.parameter_count, task_info.train_samples, task_info.valid_samples)
    )
    lines = [
        f"{experiment.name}: {experiment.task}, {parameters} parameters, on {task_info.device}",
        f"data: {task_info.data_source} ({samples} samples, {held_out} held out)",
        f"check, then capacity up to micro-batch {sizes[-1]}, then throughput of {format_plural(len(sizes), 'size')}",
        _describe_sweep(experiment, task_info),
    ]
    if budget.run_time_seconds is not None:
        time = format_duration(budget.run_time_seconds)
        lines.append(f"as many {unit} a run as its batch size trains on in {time} at the measured throughput")
    elif budget.token_budget is not None:
        tokens, _ = token_budget_of(
            budget.token_budget, sizes, experiment.sequence_length, experiment.evaluation.points
        )
        steps = tokens // (sizes[-1] * experiment.sequence_length)
        lines.append(f"{tokens:,} {unit} a run; the largest size gets {format_plural(steps, 'step')}")
    else:
        time = format_duration(budget.time_budget_seconds or DEFAULT_TIME_BUDGET)
        lines.append(f"as many {unit} a run as fit into {time} at the measured throughput")
    if experiment.baseline is not None:
        title = baseline_title(experiment.baseline, len(baseline_seeds(experiment)))
        lines.append(f"{title}; otherwise the study {IF_MISSED[experiment.baseline.if_missed]}")
    return [*lines, f"cost: {cost}", "nothing was written"]


def _describe_sweep(experiment: Experiment, task_info: TaskInfo) -> str:
    sizes, sweep, budget = experiment.batch.global_batch_sizes, experiment.sweep, experiment.budget
    rates = swept_rates(experiment, task_info)
    warmups = experiment.warmup_fractions
    extra = Repeats(sweep.seeds, len(sweep.confirmation_seeds)).runs(len(sizes), len(warmups))
    batch = f"sweep: batch {format_list(sizes)}"
    batch += f" × warm-up {format_percents(warmups)}" if len(warmups) > 1 else ""
    if sweep.search == "grid":
        runs = format_plural(len(sizes) * len(rates) * len(warmups), "run")
        text = f"{batch} × LR {format_list([format_learning_rate(rate) for rate in rates])} = {runs}"
        text += f", {extra} more for seeds"
        text += ", and more where the best is at an edge of the grid" if sweep.max_extensions else ""
    else:
        low, high = format_learning_rate(rates[0]), format_learning_rate(rates[-1])
        text = (
            f"{batch} × LR from {low} to {high}, and beyond where the best is at an end; adaptive, at most "
            f"{format_plural(explored(len(sizes), len(rates)) * len(warmups), 'run')}, {extra} more for seeds"
        )
    text += f"; at most {format_plural(budget.max_runs, 'run')} before the seeds" if budget.max_runs else ""
    text += f"; {retry_rule(sweep.retry_diverged)}" if sweep.retry_diverged else ""
    return text + (f"; at most {budget.max_tokens:,} {experiment.unit.value} in all" if budget.max_tokens else "")


def describe_whole_runs(missing: Sequence[TrainSpec], unit: Unit) -> str:
    """What `critical --run` would train from scratch for steps to a loss."""
    budgets = format_list(sorted({spec.token_budget for spec in missing}))
    return (
        f"{format_plural(len(missing), 'run')} of {budgets} {unit.value} at batch {_sizes(missing)}, each at its best "
        f"learning rate and the neighbouring ones: {_total(missing, unit)}"
    )


def describe_decays(chains: int, missing: Sequence[TrainSpec], unit: Unit) -> str:
    """What `critical --run` would train as parent runs and the decays that leave them."""
    decays = [spec for spec in missing if not spec.keep_end]
    return (
        f"{format_plural(chains, 'parent run')} at constant learning rate, at batch {_sizes(decays)}, each size at its "
        f"best learning rate and the neighbouring ones, and {format_plural(len(decays), 'decay')} from them: "
        f"{_total(missing, unit)}"
    )


def describe_branches(
    segments: Sequence[TrainSpec], branches: Sequence[TrainSpec], missing: Sequence[TrainSpec], unit: Unit
) -> str:
    """What `critical --run` would train as branches: the parent run, then pairs from its checkpoints."""
    parent, window = segments[0].layout.global_batch_size, f"{branches[0].token_budget:,} {unit.value}"
    return (
        f"{format_plural(len(segments), 'checkpoint')} of a parent run at batch {parent} and constant learning rate, "
        f"and {format_plural(len(branches), 'branch', 'branches')} of {window} at batch {_sizes(branches)}: "
        f"{_total(missing, unit)}"
    )


def refused_size(size: int, reason: RefusedFor, token_budget: int, unit: Unit, detail: str = "") -> str:
    """Why `critical --run` cannot train a batch size that would narrow the answer."""
    because = {
        "memory": "does not fit into memory",
        "data": "exceeds the number of training samples",
        "steps": f"gets too few steps from {format_count(token_budget)} {unit.value}; use a larger token budget",
        "learning rate": f"has no learning rate to start from: {detail.rstrip('.')}",
    }
    return f"Batch {size:,} would narrow the answer but {because[reason]}."


def describe_token_file(path: Path, made: Prepared, *, trained: bool) -> list[str]:
    """What `data prepare` wrote and how to use it. `trained`: its tokenizer was trained on this text."""
    described, before = made.description, made.continued_from
    how = "written"
    if before == described.text_bytes:
        how = "already complete"
    elif before > 0:
        how = f"continued from byte {before:,} of an earlier attempt"
    per_token = described.text_bytes / max(described.tokens, 1)
    lines = [
        f"{path}: {described.tokens:,} tokens of {described.text} ({described.dtype}), {how}",
        f"  {described.tokenizer}, {per_token:.2f} bytes of text per token, vocabulary {described.vocabulary:,}",
        *(f"  {notice}" for notice in made.notices),
    ]
    if described.tokenizer_file and trained:
        beside = path.parent / described.tokenizer_file
        lines.append(f"  held-out text with the same ids: batchlab data prepare TEXT --tokenizer {beside}")
    settings = f"--set data.path={path} --set data.vocabulary={described.vocabulary}"
    return [*lines, f"  use it: batchlab study tinystories {settings}"]


def _total(specs: Sequence[TrainSpec], unit: Unit) -> str:
    return f"{sum(spec.token_budget for spec in specs):,} {unit.value}"


def _sizes(specs: Sequence[TrainSpec]) -> str:
    return format_list(sorted({spec.layout.global_batch_size for spec in specs}))
