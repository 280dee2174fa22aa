"""The plan as keyword arguments of transformers.TrainingArguments (5.23) and trl.SFTConfig (1.16)."""

from __future__ import annotations

from typing import Any

from batchlab.core.batch import Unit
from batchlab.integrations.schedules import to_transformers
from batchlab.plan.expressible import require_adamw, require_equal_micro_batches
from batchlab.plan.training_plan import TrainingPlan


def training_arguments(plan: TrainingPlan, trainer: str = "transformers.TrainingArguments") -> dict[str, Any]:
    """Keyword arguments of transformers.TrainingArguments. There, the sequence length belongs to the data set."""
    require_equal_micro_batches(plan, trainer.partition(".")[0])
    c, adamw = plan.batch_configuration, require_adamw(plan, trainer)
    return {
        "per_device_train_batch_size": c.micro_batch_size,
        "gradient_accumulation_steps": c.grad_accum_steps,
        "learning_rate": c.learning_rate,
        "warmup_steps": c.warmup_steps,
        "max_steps": c.steps,
        "optim": "adamw_torch",
        "adam_beta1": adamw.beta1,
        "adam_beta2": adamw.beta2,
        "adam_epsilon": adamw.epsilon,
        "weight_decay": adamw.weight_decay,
        "max_grad_norm": c.optimizer.grad_clip or 0.0,  # 0 switches clipping off there
        "bf16": c.precision == "bf16",
        "fp16": c.precision == "fp16",
        "tf32": c.precision == "tf32",
        "torch_compile": c.compile != "off",
        **({"torch_compile_mode": c.compile} if c.compile == "reduce-overhead" else {}),
        **{name: value for name, value in to_transformers(c.schedule, c.steps).items() if value is not None},
    }


def sft_config(plan: TrainingPlan) -> dict[str, Any]:
    """Keyword arguments of trl.SFTConfig. Samples as long as each other come from packing without padding."""
    c = plan.batch_configuration
    arguments = training_arguments(plan, "trl.SFTConfig")
    if c.unit is Unit.TOKENS:
        arguments |= {"max_length": c.sequence_length, "packing": True, "packing_strategy": "wrapped"}
    return arguments
