"""The plan for pretraining repositories: nanoGPT's config file, flags of nanochat and of torchtitan.

Their optimizers are built in code of their own. Where the plan's is another one, its settings are in comments.
"""

from __future__ import annotations

import shlex

from batchlab.core.batch import Unit
from batchlab.core.errors import InputError
from batchlab.plan.expressible import adamw_of, require_equal_micro_batches, require_no_fp16
from batchlab.plan.training_plan import TrainingPlan, literal
from batchlab.words.plan import (
    NANOGPT_RUN,
    TORCHTITAN_OPTIMIZER,
    epsilon_note,
    group_note,
    nanochat_note,
    optimizer_note,
    paste_title,
)

Value = int | float | str | bool


def nanogpt(plan: TrainingPlan) -> str:
    """A config file that overrides the globals of nanoGPT's train.py (commit 3adf61e).

    gradient_accumulation_steps counts the micro-batches of all devices there. A constant learning rate is a cosine
    that ends where it began, because without decay_lr there is no warm-up.
    """
    require_equal_micro_batches(plan, "nanoGPT")
    c, schedule = plan.batch_configuration, plan.batch_configuration.schedule
    if c.unit is not Unit.TOKENS:
        raise InputError("nanoGPT trains on tokens, and this study counts samples; use another format.")
    if schedule.kind == "wsd":
        raise InputError(
            "nanoGPT cannot express the schedule wsd, because its learning rate decays as a cosine; use another "
            "format, or run the study with --set schedule.kind=cosine."
        )
    final = schedule.final_fraction if schedule.kind == "cosine" else 1.0
    values: dict[str, Value] = {
        "batch_size": c.micro_batch_size,
        "gradient_accumulation_steps": c.grad_accum_steps * c.data_parallel_size,
        "block_size": c.sequence_length,
        "learning_rate": c.learning_rate,
        "max_iters": c.steps,
        "decay_lr": True,
        "warmup_iters": c.warmup_steps,
        "lr_decay_iters": c.steps,
        "min_lr": final * c.learning_rate,
        "grad_clip": c.optimizer.grad_clip or 0.0,  # 0 switches clipping off there
        "dtype": _DTYPES[c.precision],  # float16 scales the loss there too
        "compile": c.compile != "off",
    }
    title = paste_title(plan.made_from.study, c.global_batch_size, c.unit, c.sequence_length)
    comments = [title, NANOGPT_RUN.format(devices=c.data_parallel_size)]
    adamw = adamw_of(c.optimizer)
    if adamw is not None:
        values |= {"beta1": adamw.beta1, "beta2": adamw.beta2, "weight_decay": adamw.weight_decay}
        comments.append(epsilon_note(adamw.epsilon))
    else:
        comments += optimizer_comments(plan)
    return "\n".join([*(f"# {line}" for line in comments), *(f"{key} = {_python(v)}" for key, v in values.items())])


def nanochat(plan: TrainingPlan) -> str:
    """Arguments of nanochat's base_train, whose total batch counts tokens; it has learning rates of its own."""
    require_equal_micro_batches(plan, "nanochat")
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


def torchtitan(plan: TrainingPlan) -> str:
    """Flags of torchtitan 0.3, which override a config function of your own. Batch sizes count sequences.

    The optimizer's flags are those of `default_adamw`, one group for all parameters.
    """
    require_equal_micro_batches(plan, "torchtitan")
    require_no_fp16(plan, "torchtitan")
    c, schedule = plan.batch_configuration, plan.batch_configuration.schedule
    flags: dict[str, Value] = {
        "training.local-batch-size": c.micro_batch_size,
        "training.global-batch-size": c.global_batch_size,
        "training.seq-len": c.sequence_length,
        "training.steps": c.steps,
        "training.max-norm": c.optimizer.grad_clip or "inf",  # its default clips at 1
        "training.mixed-precision-param": "bfloat16" if c.precision == "bf16" else "float32",
        "parallelism.data-parallel-replicate-degree": c.data_parallel_size,
        "parallelism.data-parallel-shard-degree": 1,
        "lr-scheduler.warmup-steps": c.warmup_steps,
        "lr-scheduler.min-lr-factor": schedule.final_fraction,
    }
    match schedule.kind:
        case "constant":
            flags["lr-scheduler.decay-ratio"] = 0.0
        case "cosine":
            flags |= {"lr-scheduler.decay-ratio": "None", "lr-scheduler.decay-type": "cosine"}
        case "wsd":
            flags |= {
                "lr-scheduler.decay-ratio": schedule.decay_fraction,
                "lr-scheduler.decay-type": "linear",
            }
    adamw = adamw_of(c.optimizer)
    comments = [TORCHTITAN_OPTIMIZER]
    if adamw is not None and not adamw.decay_in_groups:
        flags |= {
            f"{_TORCHTITAN_GROUP}.optimizer-name": "AdamW",
            f"{_TORCHTITAN_GROUP}.optimizer-kwargs.lr": c.learning_rate,
            f"{_TORCHTITAN_GROUP}.optimizer-kwargs.betas": f"{literal(adamw.beta1)} {literal(adamw.beta2)}",
            f"{_TORCHTITAN_GROUP}.optimizer-kwargs.eps": adamw.epsilon,
            f"{_TORCHTITAN_GROUP}.optimizer-kwargs.weight-decay": adamw.weight_decay,
        }
    else:
        comments = optimizer_comments(plan)
    listed = [f"--{key} {value if isinstance(value, str) else literal(value)}" for key, value in flags.items()]
    listed += ["--compile.enable"] if c.compile != "off" else []
    launch = ["torchrun", "--standalone", "--nproc-per-node", str(c.data_parallel_size), "-m", "torchtitan.train"]
    start = shlex.join([*launch, "--module", "YOUR_MODULE", "--config", "YOUR_CONFIG"])
    return "\n".join([*(f"# {line}" for line in comments), " \\\n  ".join([start, *listed])])


_DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}

_TORCHTITAN_GROUP = "optimizer.param-groups.0"


def optimizer_comments(plan: TrainingPlan) -> list[str]:
    """What the optimizer was, for an export that does not build it."""
    c = plan.batch_configuration
    if c.optimizer.groups or c.optimizer.name == "task":
        return [optimizer_note(c.optimizer.name, c.learning_rate, {}), *map(group_note, c.optimizer.groups)]
    settings = {
        name: value
        for name in ("beta1", "beta2", "epsilon", "momentum", "weight_decay")
        if (value := getattr(c.optimizer, name)) is not None
    }
    return [optimizer_note(c.optimizer.name, c.learning_rate, settings)]


def _python(value: Value) -> str:
    return repr(value) if isinstance(value, bool) else literal(value)
