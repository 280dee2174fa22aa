"""A plan in the names of other trainers; where one cannot express it, an error instead of a wrong configuration."""

from __future__ import annotations

import json
from typing import Literal, get_args

from batchlab.core.errors import InputError
from batchlab.plan.expressible import adamw_of
from batchlab.plan.huggingface import sft_config, training_arguments
from batchlab.plan.launchers import accelerate, deepspeed, launch_line, lightning
from batchlab.plan.pretraining import nanochat, nanogpt, optimizer_comments, torchtitan
from batchlab.plan.training_plan import TrainingPlan

Format = Literal[
    "json", "hf", "trl", "lightning", "accelerate", "deepspeed", "torchtitan", "nanochat", "nanogpt", "torchrun", "srun"
]

WITHOUT_COMMENTS: frozenset[Format] = frozenset({"hf", "trl", "deepspeed"})
"""Formats in JSON that is read by another program: what a comment would say is for standard error."""


def format_plan(plan: TrainingPlan, format: Format = "json") -> str:
    """The plan as text in a trainer's own names; InputError where that trainer cannot express it.

    What was extrapolated is marked in comments; the formats WITHOUT_COMMENTS have none, and `plan_notes` says it.
    """
    comments = "".join(f"# {note}\n" for note in plan.notes)
    match format:
        case "json":
            return plan.model_dump_json(indent=2)
        case "hf":
            return json.dumps(training_arguments(plan), indent=2)
        case "trl":
            return json.dumps(sft_config(plan), indent=2)
        case "deepspeed":
            return json.dumps(deepspeed(plan), indent=2)
        case "lightning":
            return comments + lightning(plan)
        case "accelerate":
            return comments + accelerate(plan)
        case "torchtitan":
            return comments + torchtitan(plan)
        case "nanochat":
            return comments + nanochat(plan)
        case "nanogpt":
            return comments + nanogpt(plan)
        case "torchrun" | "srun":
            return comments + launch_line(plan, format)
    raise InputError(f"There is no plan format {format!r}; possible: {', '.join(get_args(Format))}.")


def plan_notes(plan: TrainingPlan, format: Format) -> tuple[str, ...]:
    """What the text of `format_plan` should say beside it and has no comments for."""
    if format not in WITHOUT_COMMENTS:
        return ()
    adamw = adamw_of(plan.batch_configuration.optimizer)
    grouped = adamw is None or adamw.decay_in_groups
    return (*plan.notes, *(optimizer_comments(plan) if grouped else ()))
