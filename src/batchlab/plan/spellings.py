"""A plan in the names of other trainers; where one cannot express it, an error instead of a wrong configuration."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import tomli_w

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.plan.training_plan import TrainingPlan, literal
from batchlab.words.optimizer_groups import class_names
from batchlab.words.plan import group_note, nanochat_note

Format = Literal["json", "hf", "torchtitan", "nanochat", "torchrun"]


def format_plan(plan: TrainingPlan, format: Format = "json") -> str:
    """The plan as text in a trainer's own names; InputError where that trainer cannot express it.

    What was extrapolated is marked in comments; JSON has none, so for `hf` only `plan.notes` says it.
    """
    comments = "".join(f"# {note}\n" for note in plan.notes)
    match format:
        case "json":
            return plan.model_dump_json(indent=2)
        case "hf":
            return json.dumps(_hf(plan), indent=2)
        case "torchtitan":
            return comments + tomli_w.dumps(_torchtitan(plan)).rstrip("\n")
        case "nanochat":
            return comments + _nanochat(plan)
        case "torchrun":
            groups = "".join(f"# {group_note(group)}\n" for group in plan.batch_configuration.optimizer.groups)
            return comments + groups + _torchrun(plan)
    raise InputError(f"There is no plan format {format!r}; possible: {', '.join(get_args(Format))}.")


def _require_equal_micro_batches(plan: TrainingPlan, trainer: str) -> None:
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


def _require_adamw(plan: TrainingPlan, trainer: str) -> None:
    """If omitted, an optimizer's settings would silently become that trainer's defaults."""
    optimizer = plan.batch_configuration.optimizer
    name = optimizer.name
    if len(optimizer.groups) > 1:
        raise InputError(
            f"{trainer} cannot express the task's own optimizer with {len(optimizer.groups)} parameter groups "
            f"({class_names(optimizer.groups)}); use --format json, which lists them, and set it up in code."
        )
    if name != "adamw":
        what = {"task": "the task's own optimizer", "sgd": "SGD with momentum", "adam": "Adam with coupled decay"}[name]
        raise InputError(f"{trainer} cannot express {what}; use --format json and set the optimizer up in code.")


def _hf(plan: TrainingPlan) -> dict[str, Any]:
    """Keyword arguments of transformers.TrainingArguments. There, the sequence length belongs to the data set."""
    _require_equal_micro_batches(plan, "transformers")
    _require_adamw(plan, "transformers.TrainingArguments")
    c, o, schedule = plan.batch_configuration, plan.batch_configuration.optimizer, plan.batch_configuration.schedule
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": c.micro_batch_size,
        "gradient_accumulation_steps": c.grad_accum_steps,
        "learning_rate": c.learning_rate,
        "warmup_steps": c.warmup_steps,
        "max_steps": c.steps,
        "optim": "adamw_torch",
        "adam_beta1": o.beta1,
        "adam_beta2": o.beta2,
        "adam_epsilon": o.epsilon,
        "weight_decay": o.weight_decay,
        "max_grad_norm": o.grad_clip or 0.0,  # 0 switches clipping off there
        "bf16": c.precision == "bf16",
        "tf32": c.precision == "tf32",
        "torch_compile": c.compile,
    }
    match schedule.kind:
        case "constant":
            arguments["lr_scheduler_type"] = "constant_with_warmup"
        case "cosine":
            arguments["lr_scheduler_type"] = "cosine_with_min_lr"
            arguments["lr_scheduler_kwargs"] = {"min_lr_rate": schedule.final_fraction}
        case "wsd":
            arguments["lr_scheduler_type"] = "warmup_stable_decay"
            decay = round(schedule.decay_fraction * c.steps)
            arguments["lr_scheduler_kwargs"] = {
                "num_decay_steps": decay,
                "decay_type": "linear",
                "min_lr_ratio": schedule.final_fraction,
            }
    return arguments


def _torchtitan(plan: TrainingPlan) -> dict[str, Any]:
    """Sections of a torchtitan job config; batch sizes count sequences, and accumulation follows from the two."""
    _require_equal_micro_batches(plan, "torchtitan")
    _require_adamw(plan, "torchtitan's configuration")
    c, o, schedule = plan.batch_configuration, plan.batch_configuration.optimizer, plan.batch_configuration.schedule
    scheduler: dict[str, Any] = {"warmup_steps": c.warmup_steps, "min_lr_factor": schedule.final_fraction}
    match schedule.kind:
        case "constant":
            scheduler |= {"decay_ratio": 0.0}
        case "cosine":
            scheduler |= {"decay_type": "cosine"}
        case "wsd":
            scheduler |= {"decay_type": "linear", "decay_ratio": schedule.decay_fraction}
    return {
        "optimizer": {
            "name": "AdamW",
            "lr": c.learning_rate,
            "beta1": o.beta1,
            "beta2": o.beta2,
            "eps": o.epsilon,
            "weight_decay": o.weight_decay,
        },
        "lr_scheduler": scheduler,
        "training": {
            "local_batch_size": c.micro_batch_size,
            "global_batch_size": c.global_batch_size,
            "seq_len": c.sequence_length,
            "steps": c.steps,
            **({"max_norm": o.grad_clip} if o.grad_clip is not None else {}),
        },
        "parallelism": {"data_parallel_replicate_degree": c.data_parallel_size},
    }


def _nanochat(plan: TrainingPlan) -> str:
    """Arguments of nanochat's base_train, whose total batch counts tokens; it has learning rates of its own."""
    _require_equal_micro_batches(plan, "nanochat")
    c = plan.batch_configuration
    if c.unit is not Unit.TOKENS:
        raise InputError("nanochat trains on tokens, and this study counts samples; use another format.")
    command = ["torchrun", "--standalone", f"--nproc_per_node={c.data_parallel_size}", "-m", "scripts.base_train", "--"]
    command += [
        f"--max-seq-len={c.sequence_length}",
        f"--device-batch-size={c.micro_batch_size}",
        f"--total-batch-size={c.tokens_per_step}",
        f"--num-iterations={c.steps}",
    ]
    return f"# {nanochat_note(c.learning_rate, c.optimizer.name, c.optimizer.groups)}\n{' '.join(command)}"


def _torchrun(plan: TrainingPlan) -> str:
    """A sketch of a launch: your script, arguments in this plan's words."""
    c = plan.batch_configuration
    arguments = {
        "micro-batch-size": c.micro_batch_size,
        "grad-accum-steps": c.grad_accum_steps,
        "learning-rate": literal(c.learning_rate),
        "warmup-steps": c.warmup_steps,
        "steps": c.steps,
        "beta2": literal(c.optimizer.beta2) if c.optimizer.beta2 is not None else None,
    }
    listed = [f"--{key} {value}" for key, value in arguments.items() if value is not None]
    return " \\\n  ".join([f"torchrun --standalone --nproc-per-node {c.data_parallel_size} your_train.py", *listed])
