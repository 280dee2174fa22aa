"""training_plan.json: what to train with, each number with where it came from.

A plan states only what was measured, or what follows from it by a rule that it names.
"""

from __future__ import annotations

import json
from typing import Literal, Self

from pydantic import Field, model_validator

from batchlab.core.batch import BatchLayout, Frozen, Unit
from batchlab.core.experiment import AcrossBatch, CompileMode, Precision, ScheduleConfig
from batchlab.core.optimizer_group import OptimizerGroup
from batchlab.words.plan import confirmation_note, extrapolation_note, group_note, paste_title

Status = Literal["measured", "computed", "extrapolated", "given"]


class Provenance(Frozen):
    """Where a number comes from. `n` repetitions stand behind a measured one, a rule behind an extrapolated one."""

    status: Status
    source: str = Field(description="the runs, or who published the rule, and on what")
    n: int | None = None
    rule: str = Field(default="", description="how the number was extrapolated")
    range: str = Field(default="", description="where the rule was shown to hold")
    low: float | None = Field(default=None, description="95 % interval of a number that was extrapolated")
    high: float | None = None


class MadeFrom(Frozen):
    study: str
    run_ids: tuple[str, ...] = Field(description="the training runs behind the batch size and learning rate")
    batchlab: str = ""
    data_digest: str = ""


class OptimizerPlan(Frozen):
    """The optimizer as it was at this batch size. Unset settings do not apply; a task's own are in `groups`."""

    name: Literal["adamw", "adam", "sgd", "task"]
    beta1: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    decay_timescale: float | None = Field(
        default=None, description="adamw: batch ÷ (learning rate × weight decay × budget), as a share of the run"
    )
    grad_clip: float | None = None
    across_batch: AcrossBatch
    groups: tuple[OptimizerGroup, ...] = Field(
        default=(), description="task: its parameter groups, each at learning_rate_ratio × learning_rate"
    )


class BatchConfiguration(Frozen):
    """How to train. Warm-up and budget in tokens (samples where the unit is samples), and in steps of this batch."""

    micro_batch_size: int
    grad_accum_steps: int
    data_parallel_size: int
    global_batch_size: int
    sequence_length: int
    unit: Unit
    tokens_per_step: int
    learning_rate: float
    warmup_tokens: float
    warmup_steps: int
    token_budget: int
    steps: int
    schedule: ScheduleConfig
    optimizer: OptimizerPlan
    precision: Precision
    compile: CompileMode

    per_gpu_batch_size: int = Field(description="micro_batch_size, as training coordinators spell it")
    total_batch_size: int = Field(description="global_batch_size, in samples, as training coordinators spell it")
    gradient_accumulation_steps: int = Field(description="grad_accum_steps, as training coordinators spell it")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """A plan edited by hand must not say two things."""
        pairs = (
            ("micro_batch_size", "per_gpu_batch_size"),
            ("global_batch_size", "total_batch_size"),
            ("grad_accum_steps", "gradient_accumulation_steps"),
        )
        for name, spelling in pairs:
            if getattr(self, name) != getattr(self, spelling):
                raise ValueError(
                    f"{name} is {getattr(self, name)} but {spelling} is {getattr(self, spelling)}; "
                    "they are two spellings of one number, so change both"
                )
        if self.layout.grad_accum_steps != self.grad_accum_steps:
            raise ValueError(
                f"grad_accum_steps is {self.grad_accum_steps}, but this batch in micro-batches of "
                f"{self.micro_batch_size} takes {self.layout.grad_accum_steps}"
            )
        return self

    @property
    def layout(self) -> BatchLayout:
        return BatchLayout(
            global_batch_size=self.global_batch_size,
            micro_batch_size=self.micro_batch_size,
            data_parallel_size=self.data_parallel_size,
            sequence_length=self.sequence_length,
        )


class HardwareCalibration(Frozen):
    """tokens/s of each worker (samples/s where the unit is samples) and the share of every global batch it takes."""

    measured_performance: dict[str, float] = Field(description="worker → tokens/s; empty where nothing was measured")
    workload_distribution: dict[str, float]


class Expectation(Frozen):
    """What the study saw with these settings, and how long it takes at the speed above."""

    val_loss: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    hours: float | None = None


class TrainingPlan(Frozen):
    """The file other programs read. `TrainingPlan.model_json_schema()` describes it."""

    schema_version: Literal[1] = 1
    made_from: MadeFrom
    batch_configuration: BatchConfiguration
    command: str = Field(default="", description="of a person's own script, with this configuration filled in")
    hardware_calibration: HardwareCalibration
    expectation: Expectation
    provenance: dict[str, Provenance]
    unknown: tuple[str, ...] = Field(description="what the study does not answer")
    warnings: tuple[str, ...] = Field(
        default=(), description="estimators by which this batch is above the critical one; a layout that did not fit"
    )
    confirm: str = Field(default="", description="the cheapest runs that would confirm what was extrapolated")

    @property
    def notes(self) -> tuple[str, ...]:
        """A line per extrapolated number, and what would confirm them; empty where everything was measured."""
        lines = [
            extrapolation_note(
                name, rule=entry.rule, source=entry.source, valid=entry.range, low=entry.low, high=entry.high
            )
            for name, entry in self.provenance.items()
            if entry.rule
        ]
        return (*lines, confirmation_note(self.confirm)) if self.confirm else tuple(lines)

    @property
    def paste_block(self) -> str:
        """The settings as lines that are TOML and Python at once."""
        return paste_block(self)


def paste_block(plan: TrainingPlan) -> str:
    """The settings, one per line; valid as TOML and as Python."""
    c = plan.batch_configuration
    title = paste_title(plan.made_from.study, c.global_batch_size, c.unit, c.sequence_length)
    lines = [f"# {line}" for line in (title, *plan.notes, *map(group_note, c.optimizer.groups))]
    if plan.command:
        lines.append(f"command = {literal(plan.command)}")
    own = c.schedule.kind == "task"  # what only a person's own trainer knows is left out
    values: dict[str, int | float | str | None] = {
        "micro_batch_size": c.micro_batch_size,
        "grad_accum_steps": c.grad_accum_steps,
        "data_parallel_size": c.data_parallel_size,
        "sequence_length": c.sequence_length if c.unit is Unit.TOKENS else None,
        "learning_rate": c.learning_rate,
        "schedule": None if own else c.schedule.kind,
        "warmup_steps": c.warmup_steps or (None if own else 0),
        "steps": c.steps,
        "optimizer": None if own else c.optimizer.name,
        "beta1": c.optimizer.beta1,
        "beta2": c.optimizer.beta2,
        "momentum": c.optimizer.momentum,
        "weight_decay": c.optimizer.weight_decay,
        "grad_clip": c.optimizer.grad_clip,
        "precision": None if own else c.precision,
    }
    return "\n".join(lines + [f"{key} = {literal(value)}" for key, value in values.items() if value is not None])


def literal(value: int | float | str) -> str:
    """A value as TOML and Python both write it; six digits."""
    if isinstance(value, float):
        short = f"{value:.6g}"
        return short if any(mark in short for mark in ".e") else f"{short}.0"
    return json.dumps(value)
