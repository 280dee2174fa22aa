"""What a plan needs of another trainer: equal micro-batches, and an optimizer that the trainer can build."""

from __future__ import annotations

from dataclasses import dataclass

from batchlab.core.errors import InputError
from batchlab.plan.training_plan import OptimizerPlan, TrainingPlan
from batchlab.words.optimizer_groups import class_names


@dataclass(frozen=True, slots=True)
class AdamW:
    """The settings of one AdamW; `decay_in_groups`: only some parameters decay, as the task's own groups have it."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    decay_in_groups: bool = False


def require_equal_micro_batches(plan: TrainingPlan, trainer: str) -> None:
    """Raise InputError where the micro-batches of a step differ in size."""
    c = plan.batch_configuration
    samples = c.micro_batch_size * c.grad_accum_steps * c.data_parallel_size
    if samples != c.global_batch_size:
        share = c.global_batch_size // c.data_parallel_size
        even = max(size for size in range(1, c.micro_batch_size + 1) if share % size == 0)
        raise InputError(
            f"{trainer} needs micro-batches of equal size, and {share} samples per device were split into "
            f"{c.grad_accum_steps} of up to {c.micro_batch_size}; micro-batches of {even} would divide it, or choose "
            "another measured batch."
        )


def require_no_fp16(plan: TrainingPlan, trainer: str) -> None:
    """Raise InputError where the plan is for fp16 with a scaled loss, which this trainer does not do."""
    if plan.batch_configuration.precision == "fp16":
        raise InputError(
            f"{trainer} has no fp16 autocast with loss scaling, which the study trained with; use another format, or "
            "run the study with --precision bf16."
        )


def adamw_of(optimizer: OptimizerPlan) -> AdamW | None:
    """The one AdamW that the plan's optimizer is; None where it is another.

    A task's own groups are one AdamW where they differ in nothing but whether they decay.
    """
    if optimizer.name == "adamw":
        beta1, beta2, epsilon, decay = optimizer.beta1, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay
        if beta1 is None or beta2 is None or epsilon is None or decay is None:
            return None
        return AdamW(beta1, beta2, epsilon, decay)
    groups = optimizer.groups
    if optimizer.name != "task" or {group.optimizer for group in groups} != {"AdamW"}:
        return None
    shared = {(group.learning_rate_ratio, group.beta1, group.beta2, group.epsilon) for group in groups}
    decays = {group.weight_decay for group in groups}
    ratio, first, second, tiny = next(iter(shared))
    most = max(one or 0.0 for one in decays)
    if len(shared) > 1 or ratio != 1 or not decays <= {0.0, most} or first is None or second is None or tiny is None:
        return None
    return AdamW(first, second, tiny, most, decay_in_groups=len(decays) > 1)


def require_adamw(plan: TrainingPlan, trainer: str) -> AdamW:
    """The plan's AdamW. InputError for another optimizer, whose settings would silently become the trainer's."""
    optimizer = plan.batch_configuration.optimizer
    found = adamw_of(optimizer)
    if found is not None:
        return found
    if len(optimizer.groups) > 1:
        raise InputError(
            f"{trainer} cannot express the task's own optimizer with {len(optimizer.groups)} parameter groups "
            f"({class_names(optimizer.groups)}); use --format json, which lists them, and set it up in code."
        )
    what = {"sgd": "SGD with momentum", "adam": "Adam with coupled decay"}.get(
        optimizer.name, "the task's own optimizer"
    )
    raise InputError(f"{trainer} cannot express {what}; use --format json and set the optimizer up in code.")
