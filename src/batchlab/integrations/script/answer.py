"""The command that trains with a study's answer."""

from __future__ import annotations

import shlex
from pathlib import Path

from batchlab.core.batch import BatchLayout
from batchlab.core.experiment import Experiment
from batchlab.integrations.script.attempt import SHORT_SECONDS, Filling, placeholder_values
from batchlab.integrations.script.template import template_of

RUN_DIR = Path("out")
"""Where the command of an answer writes."""


def answer_command(
    experiment: Experiment, layout: BatchLayout, learning_rate: float, token_budget: int, warmup_tokens: float
) -> str:
    """The study's command with these values, as a person would type it; empty for a study without a command."""
    command = experiment.command
    if command is None or layout.data_parallel_size != 1:
        return ""
    filling = Filling(
        layout,
        learning_rate,
        steps=token_budget // layout.tokens_per_step,
        tokens=token_budget,
        seed=experiment.sweep.first_seed,
        warmup_steps=round(warmup_tokens / layout.tokens_per_step),
        seconds=command.seconds or SHORT_SECONDS,
    )
    values = placeholder_values(command, filling, RUN_DIR) | {"python": ("python",)}
    return shlex.join(template_of(command).filled(values))
