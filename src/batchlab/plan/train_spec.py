"""From a plan to the training run that it describes."""

from __future__ import annotations

import math
from typing import Any

from batchlab.core.errors import InputError
from batchlab.core.experiment import AcrossBatch, OptimizerConfig
from batchlab.core.spec import OptimizerSettings, TrainSpec
from batchlab.plan.safeguards import SAVE_SECONDS
from batchlab.plan.training_plan import OptimizerPlan, PlannedTask, TrainingPlan

LEAST_ROWS = 200
ROWS_PER_HOUR = 120
"""A row of metrics every half minute: the run can be saved where it has one."""


def train_spec(plan: TrainingPlan, *, device: str | None = None, threads: int = 1, seed: int = 0) -> TrainSpec:
    """The run of a plan, whose state at the end is kept.

    device: another one than the study's. Raises InputError where batchlab does not train the plan's task itself.
    """
    task, c = require_task(plan), plan.batch_configuration
    points = min(task.evaluation_points, c.steps)
    settings = task.device.model_copy(
        update={
            "name": device or task.device.name,
            "precision": c.precision,
            "compile": c.compile,
            "threads": threads,
            "memory_limit": None,
        }
    )
    return TrainSpec(
        workload=task.workload,
        layout=plan.layout,
        learning_rate=c.learning_rate,
        seed=seed,
        token_budget=c.steps * c.tokens_per_step,
        schedule=c.schedule.model_copy(
            update={"warmup_fraction": c.warmup_tokens / c.token_budget, "min_warmup_steps": 0}
        ),
        optimizer=_optimizer(c.optimizer, task),
        evaluation_interval=c.steps // points * c.tokens_per_step,
        evaluation_samples=task.evaluation_samples,
        evaluation_batch_size=task.evaluation_batch_size,
        log_points=max(LEAST_ROWS, math.ceil((plan.performance_targets.hours or 0.0) * ROWS_PER_HOUR)),
        checkpoint_seconds=plan.checkpoint_strategy.every_seconds if plan.checkpoint_strategy else SAVE_SECONDS,
        keep_end=True,
        device=settings,
    )


def require_task(plan: TrainingPlan) -> PlannedTask:
    """The plan's task. Raises InputError where a person's own program trains it."""
    if plan.task is not None:
        return plan.task
    if plan.command:
        raise InputError(f"The task of this plan is trained by its own program, not by batchlab; run: {plan.command}")
    raise InputError(
        "This plan has no task that batchlab could train: a person's own Trainer does, or the plan is for another "
        "model than was measured. Use its numbers in your own code; batchlab plan --format writes them for trainers."
    )


def _optimizer(plan: OptimizerPlan, task: PlannedTask) -> OptimizerSettings:
    """As the plan says; a task's own optimizer is scaled as it was in the study."""
    if plan.name == "task":
        return task.optimizer
    given: dict[str, Any] = {
        "name": plan.name,
        "beta1": plan.beta1,
        "beta2": plan.beta2,
        "epsilon": plan.epsilon,
        "momentum": plan.momentum,
        "weight_decay": plan.weight_decay,
    }
    known = {name: value for name, value in given.items() if value is not None}
    return OptimizerSettings(config=OptimizerConfig(**known, grad_clip=plan.grad_clip, across_batch=AcrossBatch.FIXED))
