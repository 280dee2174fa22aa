"""The plan for what starts your own loop: Lightning's Trainer, accelerate, DeepSpeed, torchrun.

Except for DeepSpeed's, optimizer and data loader are the script's own, and comments say what they should be.
"""

from __future__ import annotations

import json
from typing import Any

from batchlab.core.errors import InputError
from batchlab.plan.expressible import adamw_of, require_equal_micro_batches, require_no_fp16
from batchlab.plan.pretraining import optimizer_comments
from batchlab.plan.training_plan import TrainingPlan, literal
from batchlab.words.plan import group_note, loader_note, paste_title, schedule_note


def lightning(plan: TrainingPlan) -> str:
    """Python: a lightning.Trainer (2.6), with what belongs into the module and the data loader in comments."""
    require_equal_micro_batches(plan, "lightning")
    c = plan.batch_configuration
    arguments: dict[str, Any] = {
        "max_steps": c.steps,
        "accumulate_grad_batches": c.grad_accum_steps,
        "gradient_clip_val": c.optimizer.grad_clip,
        "precision": {"bf16": "bf16-mixed", "fp16": "16-mixed"}.get(c.precision, "32-true"),
        "devices": c.data_parallel_size,
    }
    if c.data_parallel_size > 1:
        arguments["strategy"] = "ddp"
    lines = [f"    {key}={value!r}," for key, value in arguments.items()]
    imports = ["import lightning", ""]
    if c.precision == "tf32":
        imports = ["import lightning", "import torch", "", 'torch.set_float32_matmul_precision("high")']
    return "\n".join([*_script_comments(plan), *imports, "trainer = lightning.Trainer(", *lines, ")"])


def accelerate(plan: TrainingPlan) -> str:
    """YAML for `accelerate launch --config_file` (1.15). Gradient accumulation is an argument of the Accelerator."""
    require_equal_micro_batches(plan, "accelerate")
    c = plan.batch_configuration
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if c.data_parallel_size > 1 else "NO",
        "num_machines": 1,
        "num_processes": c.data_parallel_size,
        "mixed_precision": c.precision if c.precision in ("bf16", "fp16") else "no",
    }
    if c.compile != "off":
        values["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    comments = [
        f"# accelerator = Accelerator(gradient_accumulation_steps={c.grad_accum_steps})",
        *_script_comments(plan),
    ]
    return "\n".join([*comments, *(f"{key}: {json.dumps(value)}" for key, value in values.items())])


def deepspeed(plan: TrainingPlan) -> dict[str, Any]:
    """A DeepSpeed configuration (0.19). bf16 is autocast, as in the study; its `bf16` section would cast the weights.

    Where the optimizer is not one AdamW, it and the schedule are left out: DeepSpeed then takes the script's own.
    """
    require_equal_micro_batches(plan, "deepspeed")
    require_no_fp16(plan, "deepspeed")
    c, adamw = plan.batch_configuration, adamw_of(plan.batch_configuration.optimizer)
    config: dict[str, Any] = {
        "train_batch_size": c.global_batch_size,
        "train_micro_batch_size_per_gpu": c.micro_batch_size,
        "gradient_accumulation_steps": c.grad_accum_steps,
        "gradient_clipping": c.optimizer.grad_clip or 0.0,  # 0 switches clipping off there
    }
    if c.precision == "bf16":
        config["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
    if adamw is None or adamw.decay_in_groups:
        return config
    config["optimizer"] = {
        "type": "AdamW",
        "params": {
            "lr": c.learning_rate,
            "betas": [adamw.beta1, adamw.beta2],
            "eps": adamw.epsilon,
            "weight_decay": adamw.weight_decay,
            "torch_adam": True,
        },
    }
    config["scheduler"] = _deepspeed_scheduler(plan)
    return config


def _deepspeed_scheduler(plan: TrainingPlan) -> dict[str, Any]:
    c, schedule = plan.batch_configuration, plan.batch_configuration.schedule
    warmup: dict[str, Any] = {"warmup_num_steps": c.warmup_steps, "warmup_type": "linear"}  # its default is log
    match schedule.kind:
        case "constant":
            rates = {"warmup_min_lr": 0.0, "warmup_max_lr": c.learning_rate}
            return {"type": "WarmupLR", "params": {**warmup, **rates}}
        case "cosine":
            ends = {
                "total_num_steps": c.steps,
                "warmup_min_ratio": 0.0,
                "cos_min_ratio": schedule.final_fraction,
            }
            return {"type": "WarmupCosineLR", "params": {**warmup, **ends}}
        case "wsd":
            raise InputError(
                "deepspeed cannot express the schedule wsd; pass your own scheduler to deepspeed.initialize, with the "
                "numbers of --format json, or run the study with --set schedule.kind=cosine."
            )
        case "task":
            raise InputError("The study's schedule is that of a script, which only its command has.")


def torchrun(plan: TrainingPlan) -> str:
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
    groups = "".join(f"# {group_note(group)}\n" for group in c.optimizer.groups)
    return groups + " \\\n  ".join(
        [f"torchrun --standalone --nproc-per-node {c.data_parallel_size} your_train.py", *listed]
    )


def _script_comments(plan: TrainingPlan) -> list[str]:
    c = plan.batch_configuration
    title = paste_title(plan.made_from.study, c.global_batch_size, c.unit, c.sequence_length)
    notes = [title, loader_note(c.micro_batch_size), schedule_note(c.schedule, c.warmup_steps, c.steps)]
    return [f"# {note}" for note in (*notes, *optimizer_comments(plan))]
