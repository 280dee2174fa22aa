"""From findings to the checklist, the verification steps and the checkpoints of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from batchlab.analysis.values import Interval, Run
from batchlab.core.format import format_bytes
from batchlab.core.spec import MIN_STEPS
from batchlab.plan.safeguards import SAVE_SECONDS, ChecklistItem, CheckName, CheckpointStrategy, VerificationStep
from batchlab.plan.training_plan import BatchConfiguration, MadeFrom, PerformanceTargets, PlannedTask
from batchlab.runs.clock import SAVING_SHARE
from batchlab.words.plan_guidance import (
    CHECKS,
    describe_curve_step,
    describe_memory_step,
    describe_predicted_speed,
    describe_speed_step,
)

_STATE_BYTES = 16
"""Of a checkpoint per parameter: weights and two moments in float32, and some room."""

_CHECKPOINTS = 3
"""At once on the disk: the last one, the one that is being written, and the state at the end."""

_RESUME = "batchlab train training_plan.json"


def checkpoint_strategy(task: PlannedTask) -> CheckpointStrategy:
    """How `batchlab train` saves the task."""
    state = None if task.parameter_count is None else _STATE_BYTES * task.parameter_count
    return CheckpointStrategy(
        every_seconds=SAVE_SECONDS,
        most_of_run=SAVING_SHARE,
        state_bytes=state,
        disk_bytes=None if state is None else _CHECKPOINTS * state,
        resume=_RESUME,
    )


def checklist(
    made_from: MadeFrom,
    task: PlannedTask | None,
    targets: PerformanceTargets,
    checkpoints: CheckpointStrategy | None,
    devices: int,
    device: str,
) -> tuple[ChecklistItem, ...]:
    """What to look at before the run; what is not known here is asked for without a number."""
    needed: dict[CheckName, str] = {
        "data": made_from.data_digest,
        "code": task.workload.code_digest if task else "",
        "batchlab": made_from.batchlab,
        "framework": task.framework if task else "",
        "devices": f"{devices} × {device}",
        "memory": format_bytes(targets.peak_bytes) if targets.peak_bytes else "",
        "disk": format_bytes(checkpoints.disk_bytes) if checkpoints and checkpoints.disk_bytes else "",
        "locks": "",
    }
    return tuple(ChecklistItem(name=name, needed=what, text=CHECKS[name]) for name, what in needed.items())


def verification_steps(
    configuration: BatchConfiguration, targets: PerformanceTargets, measured: Interval | None, runs: Sequence[Run]
) -> tuple[VerificationStep, ...]:
    """What to compare while the run goes.

    measured: tokens/s of this batch on so many devices, slowest to fastest block, where that was measured. runs: those
    behind the plan's loss; empty where it was extrapolated.
    """
    steps = []
    settled = min(MIN_STEPS, configuration.steps)
    if targets.tokens_per_second is not None:
        low, high = (measured.low, measured.high) if measured else (None, None)
        high = high or targets.tokens_per_second
        unit, devices = configuration.unit, configuration.data_parallel_size
        text = describe_speed_step(settled, low, high, unit, devices)
        if targets.step is not None:
            low, high = None, targets.tokens_per_second
            text = describe_predicted_speed(settled, high, unit, devices)
        steps.append(VerificationStep(quantity="tokens_per_second", after_step=settled, low=low, high=high, text=text))
    if targets.peak_bytes is not None:
        text = describe_memory_step(settled, targets.peak_bytes)
        steps.append(
            VerificationStep(quantity="peak_bytes", after_step=settled, high=float(targets.peak_bytes), text=text)
        )
    return (*steps, *_losses(configuration, runs))


def _losses(configuration: BatchConfiguration, runs: Sequence[Run]) -> list[VerificationStep]:
    """The first evaluation after the warm-up, the one nearest to the middle, and the last."""
    curves = [dict(run.val_curve) for run in runs if run.val_loss is not None]
    shared = sorted(set.intersection(*map(set, curves))) if curves else []
    after = [tokens for tokens in shared if tokens > configuration.warmup_tokens]
    if not after:
        return []
    middle = min(after, key=lambda tokens: abs(tokens - configuration.token_budget / 2))
    steps = []
    for tokens in sorted({after[0], middle, after[-1]}):
        losses = [curve[tokens] for curve in curves]
        step, low, high = math.ceil(tokens / configuration.tokens_per_step), min(losses), max(losses)
        text = describe_curve_step(step, low, high, len(losses))
        steps.append(VerificationStep(quantity="val_loss", after_step=step, low=low, high=high, text=text))
    return steps
