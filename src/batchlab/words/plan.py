"""Where each number of a training plan comes from, and the comments of a plan's exports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from batchlab.analysis.capacity.capacity import Capacity
from batchlab.analysis.findings import Findings
from batchlab.analysis.sweep.warmups import SizeWarmups
from batchlab.analysis.values import BatchRow, Interval
from batchlab.analysis.verdict import Cost, Recommendation
from batchlab.core.batch import BatchLayout, Unit
from batchlab.core.experiment import AcrossBatch, OptimizerConfig, ScheduleConfig
from batchlab.core.format import (
    format_batch,
    format_learning_rate,
    format_list,
    format_percent,
    format_percents,
    format_plural,
)
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.core.spec import MIN_STEPS
from batchlab.words.costs import describe_extra
from batchlab.words.optimizer_groups import describe_optimizers, describe_settings
from batchlab.words.reasons import describe_reason
from batchlab.words.run_length import run_length
from batchlab.words.sweep import describe_row

ASKED_FOR = "asked for"
NO_SPEED = "speed was not measured"

COMPUTED: Mapping[str, str] = {
    "grad_accum_steps": "samples per device ÷ micro-batch",
    "tokens_per_step": "global batch × sequence length",
    "steps": "token budget ÷ tokens per step",
    "warmup_steps": "warm-up tokens ÷ tokens per step, rounded up",
    "warmup_epochs": "warm-up tokens ÷ (training samples × sequence length)",
    "training_samples": "counted when the task was loaded",
    "performance_targets.tokens_per_second": "measured tokens/s of each device × devices",
    "workload_distribution": "equal shares for equal devices",
    "performance_targets.hours": "token budget ÷ (tokens/s × devices), without evaluation and start-up",
}
"""How the numbers that follow from others are computed."""

SETTING = "the study's setting, the same in every run"

EXTRAPOLATED: Mapping[str, str] = {
    "global_batch_size": "asked for, not measured",
    "token_budget": "asked for, rounded down to whole steps",
    "performance_targets.val_loss": "not measured, and no rule is trusted to predict it",
    "performance_targets.hours": "token budget ÷ (tokens/s of the nearest size × devices); empty for another model",
}
"""Sources of the numbers that no rule gives where the batch size or budget was not measured."""


def describe_length(found: Findings) -> str:
    """Why a run has so many tokens."""
    if found.run_seconds is None:
        return "every run of the study had it"
    return f"what this batch size trains on in {run_length(found)}, the time that every run of the study had"


def describe_runs(row: BatchRow) -> str:
    """The runs behind a measured batch size."""
    if row.best is None:
        return ""
    rate = format_learning_rate(row.best.learning_rate)
    return f"{format_plural(len(row.best.losses), 'seed')} at batch {row.global_batch_size:,}, learning rate {rate}"


def describe_batch(row: BatchRow, recommended: Recommendation | None, unit: Unit) -> str:
    """Why this batch size. `recommended` None: it was asked for."""
    return f"{describe_runs(row)}; {describe_reason(recommended, unit) if recommended else ASKED_FOR}"


def describe_rate(row: BatchRow) -> str:
    """Why this learning rate, and what limits it."""
    text = f"lowest loss of {format_plural(len(row.cells), 'learning rate')} tried at this batch size"
    limits = describe_row(row)
    return f"{text}; {limits}" if limits else text


def describe_layout(memory: Capacity | None, layout: BatchLayout) -> str:
    """Why these micro-batches."""
    devices = layout.data_parallel_size
    if devices == 1:
        return "the layout that was trained"
    fits = "micro-batch sizes were not probed"
    if memory is not None and memory.max_micro_batch_size is not None:
        fits = f"the largest that fits is {memory.max_micro_batch_size:,} ({memory.status})"
    return (
        f"global batch ÷ {format_plural(devices, 'device')}, in the fewest micro-batches that fit; {fits}; every "
        "device is assumed to have this one's memory"
    )


def describe_nearest_layout(measured: int, size: int) -> str:
    """Why these micro-batches, where the batch size was not measured."""
    if measured == size:
        return f"the layout of batch {size:,} in the study"
    return f"based on the layout of batch {measured:,}, the nearest one measured, for batch {size:,}"


def describe_devices(layout: BatchLayout) -> str:
    return "one device" if layout.data_parallel_size == 1 else ASKED_FOR


def describe_shareable(devices: int, tied: Sequence[int], nearest: int | None, cost: Cost | None) -> str:
    """Which measured batches so many devices can share. `nearest` is the nearest of them, at `cost`."""
    if tied:
        verb = "is" if len(tied) == 1 else "are"
        sizes = format_list(tied)
        found = f"Of those that {devices} can share, {sizes} {verb} statistically tied with the best"
        return f"{found}: --batch-size {tied[0]}."
    if nearest is None:
        return ""
    tokens = cost.tokens.value if cost is not None and cost.tokens is not None else None
    known = tokens is not None and math.isfinite(tokens)
    price = f", which costs {describe_extra(Interval(tokens or 0.0), 'tokens')}" if known else ""
    return f"The nearest that {devices} can share is {nearest}{price}: --batch-size {nearest}."


def describe_warmup(schedule: ScheduleConfig) -> str:
    text = f"schedule.warmup_fraction {schedule.warmup_fraction:g} of the budget"
    return f"{text}, at least {schedule.min_warmup_steps:,} steps" if schedule.min_warmup_steps else text


def describe_best_warmup(warmups: SizeWarmups) -> str:
    """Where the warm-up comes from, where several were tried."""
    tried = format_percents([each.warmup_fraction for each in warmups.tried])
    text = f"{format_percent(warmups.taken)} of the budget, the best of {tried} at batch {warmups.global_batch_size:,}"
    return text if warmups.told_apart else f"{text}; noise does not tell it from the others"


def describe_loss(row: BatchRow, layout: BatchLayout) -> str:
    """Where the expected loss comes from."""
    if layout.data_parallel_size == 1:
        return describe_runs(row)
    return f"{describe_runs(row)}; splitting a batch over devices does not change its gradient"


def describe_beta2(optimizer: OptimizerConfig, reference_batch_size: int) -> str:
    """How beta2 follows the batch size."""
    if optimizer.across_batch is AcrossBatch.FIXED:
        return "the same at every batch size"
    return f"half-life in tokens held constant, as in the study: {optimizer.beta2:g}^(batch ÷ {reference_batch_size})"


def describe_own_optimizer(across_batch: AcrossBatch) -> str:
    """Where the settings of a task's own optimizer come from."""
    text = "the task's own, built at this learning rate; every group keeps the ratio of its learning rate"
    return text if across_batch is AcrossBatch.FIXED else f"{text}; beta2 and epsilon follow the batch size"


def group_note(group: OptimizerGroup) -> str:
    """A parameter group of the task's own optimizer, for a comment of an export."""
    return f"optimizer group: {describe_settings(group)}"


def describe_speed(measured: int, share: int, devices: int) -> str:
    """Where tokens/s come from. `share`: samples of a step on each device."""
    if devices == 1 and measured == share:
        return f"throughput of batch {measured:,}, alone on the device"
    return f"throughput of batch {measured:,} on one device, for {share:,} samples per device, without communication"


def describe_untested(source: str) -> str:
    """A layout whose memory was not watched for long enough."""
    return f"{source}; not yet run for {MIN_STEPS} steps, which --recheck does"


def extrapolation_note(name: str, *, rule: str, source: str, valid: str, low: float | None, high: float | None) -> str:
    """A number that a rule gave, for a comment of an export."""
    show = format_learning_rate if name == "learning_rate" else _three_digits
    between = ""
    if low is not None and high is not None:
        between = f", {show(low)} to {show(high)}"
    elif low is not None or high is not None:
        between = f", at least {show(low)}" if low is not None else f", at most {show(high or 0.0)}"
    return f"extrapolated: {name} by {rule}{between} ({source}; valid for {valid})"


def _three_digits(number: float) -> str:
    return f"{number:.3g}"


def confirmation_note(runs: str) -> str:
    return f"to confirm: {runs}"


def paste_title(study: str, global_batch_size: int, unit: Unit, sequence_length: int) -> str:
    """The first line of a paste-ready block."""
    return f"batchlab study {study}: {format_batch(global_batch_size, unit, sequence_length)} per step"


def nanochat_note(learning_rate: float, optimizer: str, groups: Sequence[OptimizerGroup]) -> str:
    """Why no learning rate is among nanochat's arguments."""
    rate = format_learning_rate(learning_rate)
    if groups:
        optimizer = f"the task's own: {describe_optimizers(groups)}"
    return f"nanochat's optimizers have learning rates of their own; {rate} was measured with {optimizer}"


NANOGPT_RUN = "save as config/batchlab.py: torchrun --standalone --nproc_per_node={devices} train.py config/batchlab.py"

TORCHTITAN_OPTIMIZER = "the optimizer's flags are those of a config with optimizer=default_adamw(...)"


def epsilon_note(epsilon: float) -> str:
    """nanoGPT builds its AdamW without the argument eps."""
    return f"epsilon was {epsilon:.3g} in the study; nanoGPT's own is 1e-08"


def loader_note(micro_batch_size: int) -> str:
    """The batch size of a loader, which a launcher does not know."""
    return f"in the script: DataLoader(batch_size={micro_batch_size})"


def schedule_note(schedule: ScheduleConfig, warmup_steps: int, steps: int) -> str:
    """The schedule of an optimizer that the script builds."""
    after = {
        "cosine": f"cosine to {schedule.final_fraction:g} × the learning rate at step {steps:,}",
        "constant": "constant",
        "wsd": f"constant, and linear to {schedule.final_fraction:g} × over the last "
        f"{round(schedule.decay_fraction * steps):,} of {steps:,} steps",
    }[schedule.kind]
    return f"schedule: {warmup_steps:,} steps of warm-up, then {after}"


def optimizer_note(name: str, learning_rate: float, settings: Mapping[str, float]) -> str:
    """The optimizer that the script builds."""
    rate = format_learning_rate(learning_rate)
    if name == "task":
        return f"optimizer: the task's own, at learning rate {rate}"
    listed = "".join(f", {key} {value:.6g}" for key, value in settings.items())
    return f"optimizer: {name}, learning rate {rate}{listed}"
